"""A removal against a stand-in of AWS that answers as AWS does while something is busy, held or protected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import destroy
from gpuctl.eks import state as states
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.removal import Belongings, Choice, Row, remaining
from gpuctl.eks.remover import Remover
from gpuctl.eks.wait import Waiter
from tests.rig.aws_refusals import refused

Answer = dict[str, Any] | Exception


@dataclass
class StandInAws(Aws):
    """Answers by operation: the next of a list, the last again and again. What has no answer is absent or empty."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    acts: list[str] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    region: str = "us-east-1"

    def _answer(self, operation: str) -> Any:
        several = self.answers.get(operation) or []
        one = several.pop(0) if len(several) > 1 else several[0] if several else None
        if isinstance(one, Exception):
            raise one
        return one

    def read(self, request: Request, convert: Callable[[Any], Any]) -> list[Any]:
        answer = self._answer(request.operation)
        if request.items:
            return [convert(one) for one in (answer or {}).get(request.items) or ()]
        if answer is None:
            raise refused("ResourceNotFoundException", "not found")
        return [convert(answer)]

    def act(self, request: Request) -> dict[str, Any]:
        self.acts.append(request.operation)
        self.parameters.append(request.parameters)
        return self._answer(request.operation) or {}


def remover(aws: Aws, state: State, around: Belongings | None = None, limit: float = 10.0) -> Remover:
    """With a clock that every look moves by `limit`."""
    clock = iter(range(0, 10**9, int(limit)))
    waiter = Waiter(lambda _: None, lambda _: None, lambda: float(next(clock)), 0.0)
    return Remover(aws, state, lambda *_: around or Belongings(), Choice(), waiter)


def lab(*objects: Object) -> State:
    return State("lab", "us-east-1", list(objects))


def test_objects_that_something_holds_share_one_limit_of_waiting() -> None:
    aws = StandInAws({"DeleteSecurityGroup": [refused("DependencyViolation")]})
    run = remover(aws, lab(), limit=100)
    for number in range(20):
        run.delete(Object(Kind.SECURITY_GROUP, f"sg-{number}"))
    assert len(run.findings) == 20
    assert len(aws.acts) < 60  # each with a limit of its own: about 200


def test_volumes_of_the_nodes_are_tagged_before_the_nodes_go() -> None:
    disk = Object(Kind.VOLUME, "vol-1", tags={"ebs.csi.aws.com/cluster": "true"})
    aws = StandInAws()
    state = lab(Object(Kind.GROUP, "gpu", state="ACTIVE"))
    found = destroy.destroy(remover(aws, state), Belongings([disk], unassigned=frozenset({"vol-9"})))
    assert aws.acts[:2] == ["CreateTags", "DeleteNodegroup"]
    assert aws.parameters[0]["Resources"] == ["vol-1"]
    assert [(one.subject, one.verdict) for one in found] == [("vol-9", Verdict.UNKNOWN)]


VPC_OF_GATEWAY = {"Attachments": [{"VpcId": "vpc-1"}]}


def test_a_gateway_that_public_addresses_hold_is_a_finding_and_the_rest_goes_on() -> None:
    aws = StandInAws({"DetachInternetGateway": [refused("DependencyViolation", "mapped public address(es)")]})
    gateway = Object(Kind.GATEWAY, "igw-1", ours=True, data=VPC_OF_GATEWAY)
    run = remover(aws, lab(), limit=300)
    run.network([Row(gateway, goes=True), Row(Object(Kind.VPC, "vpc-1", ours=True), goes=True)])
    assert [one.subject for one in run.findings] == ["igw-1"]
    assert aws.acts[-1] == "DeleteVpc"
    assert "DeleteInternetGateway" not in aws.acts


@pytest.mark.parametrize("answer", [refused("Gateway.NotAttached"), {}])
def test_a_gateway_that_is_detached_goes(answer: Answer) -> None:
    aws = StandInAws({"DetachInternetGateway": [refused("DependencyViolation"), answer]})
    remover(aws, lab()).network([Row(Object(Kind.GATEWAY, "igw-1", data=VPC_OF_GATEWAY), goes=True)])
    assert aws.acts[-1] == "DeleteInternetGateway"


def described_cluster(status: str) -> Answer:
    return {"cluster": {"name": "lab", "status": status}}


def test_a_cluster_that_is_still_made_is_deleted_when_eks_takes_it() -> None:
    aws = StandInAws(
        {
            "DeleteCluster": [*[refused("ResourceInUseException", "update in progress")] * 2, {}],
            "DescribeCluster": [described_cluster("CREATING"), described_cluster("ACTIVE"), refused("NotFound")],
        }
    )
    remover(aws, lab(Object(Kind.CLUSTER, "lab", state="CREATING"))).control_plane()
    assert aws.acts.count("DeleteCluster") == 3


def test_a_cluster_with_a_new_node_group_is_not_asked_again() -> None:
    aws = StandInAws(
        {
            "DeleteCluster": [refused("ResourceInUseException", "Cluster has nodegroups attached")],
            "DescribeCluster": [described_cluster("ACTIVE")],
            "ListNodegroups": [{"nodegroups": ["new"]}],
            "DescribeNodegroup": [{"nodegroup": {"nodegroupName": "new", "status": "CREATING"}}],
        }
    )
    with pytest.raises(GpuctlError, match="nodegroups attached"):
        remover(aws, lab(Object(Kind.CLUSTER, "lab", state="ACTIVE"))).control_plane()
    assert aws.acts == ["DeleteCluster"]


def test_groups_that_can_go_do_not_wait_for_one_that_is_still_made() -> None:
    group = {"nodegroupName": "slow", "status": "CREATING"}
    aws = StandInAws(
        {
            "DeleteNodegroup": [{}, refused("ResourceInUseException"), {}],
            "ListNodegroups": [{"nodegroups": ["slow"]}, {}],
            "DescribeNodegroup": [{"nodegroup": group}],
        }
    )
    state = lab(Object(Kind.GROUP, "slow", state="CREATING"), Object(Kind.GROUP, "gpu", state="ACTIVE"))
    remover(aws, state).workers()
    assert [one["nodegroupName"] for one in aws.parameters] == ["gpu", "slow", "slow"]


def test_a_fargate_profile_that_cannot_be_deleted_ends_with_its_cause() -> None:
    issue = {"code": "PodExecutionRoleAlreadyInUse", "message": "the role is used"}
    profile = {"fargateProfileName": "web", "status": "DELETE_FAILED", "health": {"issues": [issue]}}
    aws = StandInAws(
        {
            "ListFargateProfiles": [{"fargateProfileNames": ["web"]}],
            "DescribeFargateProfile": [{"fargateProfile": profile}],
        }
    )
    with pytest.raises(GpuctlError, match="the role is used"):
        remover(aws, lab(Object(Kind.FARGATE, "web", state="ACTIVE"))).workers()


def test_a_protected_load_balancer_is_a_finding_and_the_next_one_goes() -> None:
    aws = StandInAws({"DeleteLoadBalancer": [refused("OperationNotPermitted", "deletion protection"), {}]})
    run = remover(aws, lab())
    balancers = [Object(Kind.LOAD_BALANCER, name, data={"LoadBalancerArn": f"arn:{name}"}) for name in ("a", "b")]
    run.balancers([Row(one, goes=True) for one in balancers])
    assert [(one.check, one.subject) for one in run.findings] == [("protection", "a")]
    assert len(aws.acts) == 2


def test_interfaces_that_appear_late_are_deleted_while_a_group_is_held() -> None:
    in_use = refused("InvalidParameterValue", "Network interface eni-1 is currently in use")
    aws = StandInAws(
        {
            "DeleteSecurityGroup": [*[refused("DependencyViolation")] * 2, {}],
            "DeleteNetworkInterface": [in_use, {}],
        }
    )
    around = Belongings([Object(Kind.INTERFACE, "eni-1")], leaked=frozenset({"eni-1"}))
    run = remover(aws, lab(), around)
    run.delete(Object(Kind.SECURITY_GROUP, "sg-1"))
    assert run.findings == []
    assert aws.acts.count("DeleteNetworkInterface") == 2


def test_a_nat_gateway_that_failed_counts_as_deleted() -> None:
    aws = StandInAws({"DescribeNatGateways": [{"NatGateways": [{"NatGatewayId": "nat-1", "State": "failed"}]}]})
    failed = Object(Kind.NAT, "nat-1", state="failed", ours=True)
    remover(aws, lab(failed)).nat([failed])
    assert [one.verdict for one in remaining(lab(failed), Belongings(), Choice())] == [Verdict.OK]


def test_a_nat_gateway_that_stays_in_the_list_is_not_deleted() -> None:
    theirs = Object(Kind.NAT, "nat-9", state="available", tags={"gpuctl:cluster": "lab", "gpuctl:region": "other"})
    aws = StandInAws()
    destroy.destroy(remover(aws, lab(theirs)), Belongings())
    assert "DeleteNatGateway" not in aws.acts


def test_a_group_that_rules_of_others_name_is_not_waited_for() -> None:
    aws = StandInAws({"DeleteSecurityGroup": [refused("DependencyViolation")]})
    run = remover(aws, lab())
    run.named_by = {"sg-1": ["sg-9 (database)"]}
    run.delete(Object(Kind.SECURITY_GROUP, "sg-1"))
    assert len(aws.acts) == 1
    assert "sg-9 (database)" in run.findings[0].message


@pytest.mark.parametrize(("looks", "verdict"), [(2, Verdict.OK), (1000, Verdict.FAIL)])
def test_the_last_search_is_repeated_as_lists_lag(looks: int, verdict: Verdict) -> None:
    aws, seen = StandInAws(), list[int]()

    def look(*_: object) -> Belongings:
        seen.append(1)
        is_listed = len(seen) <= looks
        disk = Object(Kind.VOLUME, "vol-1", tags={"kubernetes.io/cluster/lab": "owned"})
        return Belongings([disk] if is_listed else [])

    run = replace(remover(aws, lab()), look=look)
    assert [one.verdict for one in destroy.destroy(run, Belongings())] == [verdict]
    assert len(seen) < 20


def test_a_load_balancer_that_was_made_after_the_first_look_goes_before_the_network() -> None:
    """As for a Service that Argo CD made again while the control plane still ran."""
    tags = {"elbv2.k8s.aws/cluster": "lab"}
    balancer = Object(Kind.LOAD_BALANCER, "k8s-web", tags=tags, data={"LoadBalancerArn": "arn:lb", "VpcId": "vpc-1"})
    elsewhere = replace(balancer, name="kubeadm", data={"LoadBalancerArn": "arn:2", "VpcId": "vpc-9"})
    group = Object(Kind.SECURITY_GROUP, "sg-1", tags=tags, data={"VpcId": "vpc-1"})
    aws, lines = StandInAws(), list[str]()
    run = remover(aws, lab(Object(Kind.VPC, "vpc-1", "vpc", ours=True)))
    run.waiter.progress = lines.append

    def look(_: Aws, __: State, kinds: tuple[Kind, ...] = ()) -> Belongings:
        is_gone = "DeleteLoadBalancer" in aws.acts
        return Belongings([] if is_gone else [one for one in (balancer, elsewhere, group) if one.kind in kinds])

    run.look = look
    destroy.destroy(run, Belongings())
    assert aws.acts == ["DeleteLoadBalancer", "DeleteSecurityGroup", "DeleteVpc"]
    assert "load balancer k8s-web was made meanwhile, and goes, too" in lines


OWNED = {"kubernetes.io/cluster/lab": "owned"}
COPY = Object(Kind.SNAPSHOT, "snap-1", tags=OWNED)
TARGETS = Object(Kind.TARGET_GROUP, "web", tags={"elbv2.k8s.aws/cluster": "lab"}, data={"TargetGroupArn": "arn:web"})


@pytest.mark.parametrize(
    ("item", "operation", "refusal", "check"),
    [
        (COPY, "DeleteSnapshot", refused("InvalidParameterValue", "managed by the AWS Backup service"), "remains"),
        (COPY, "DeleteSnapshot", refused("InvalidSnapshot.InUse", "in use by ami-1"), "in-use"),
        (COPY, "DeleteSnapshot", refused("SnapshotLocked", "it is locked"), "remains"),
        (TARGETS, "DeleteTargetGroup", refused("AccessDenied", "no permission"), "remains"),
        (TARGETS, "DeleteTargetGroup", refused("ResourceInUse", "a listener uses it"), "in-use"),
    ],
)
def test_a_snapshot_or_target_group_that_aws_refuses_to_delete_is_a_finding_and_the_rest_goes(
    item: Object, operation: str, refusal: GpuctlError, check: str
) -> None:
    nat = Object(Kind.NAT, "nat-1", state="available", ours=True)
    aws, around = StandInAws({operation: [refusal]}), Belongings([item])
    run = remover(aws, lab(nat, Object(Kind.VPC, "vpc-1", ours=True)), around)
    run.choice = Choice("", "", "delete")
    found = destroy.destroy(run, around)
    assert (check, item.name) in [(one.check, one.subject) for one in found if one.verdict is Verdict.FAIL]
    assert {"DeleteNatGateway", "DeleteVpc"} <= set(aws.acts)
    assert aws.acts.count(operation) == 1  # it is not waited for
    if item is COPY:
        assert aws.acts[-1] == operation
    assert run.wait_s == Remover.wait_s


def test_a_snapshot_that_is_gone_meanwhile_leaves_the_other_claims_tagged() -> None:
    gone = refused("InvalidSnapshot.NotFound")
    aws = StandInAws({"CreateTags": [{}, gone, {}, gone]})
    names = [(Kind.VOLUME, "vol-1"), (Kind.SNAPSHOT, "snap-1"), (Kind.SNAPSHOT, "snap-gone")]
    remover(aws, lab()).mark([Object(kind, name) for kind, name in names])
    tagged = [one["Resources"] for one in aws.parameters]
    assert tagged == [["vol-1"], ["snap-1", "snap-gone"], ["snap-1"], ["snap-gone"]]


@pytest.mark.parametrize(
    ("kind", "error", "goes"),
    [
        (Kind.SNAPSHOT, refused("RequestLimitExceeded", "throttled"), False),
        (Kind.STACK, GpuctlError("list them", "no answer"), False),
        (Kind.SNAPSHOT, refused("UnauthorizedOperation", "no permission"), True),
        (Kind.LOG_GROUP, refused("AccessDeniedException", "no permission"), True),
        (Kind.TARGET_GROUP, refused("RequestLimitExceeded", "throttled"), True),
    ],
)
def test_the_first_role_stays_while_what_may_cost_could_not_be_listed(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, error: GpuctlError, goes: bool
) -> None:
    aws, state = StandInAws(), lab(Object(Kind.ROLE, "role-1", "cluster", ours=True))
    monkeypatch.setattr(states, "read", lambda *_: state)
    around = Belongings(unread={kind: error})
    found = destroy.destroy(remover(aws, state, around), around)
    assert ("DeleteRole" in aws.acts) is goes
    assert [one.verdict for one in found] == [Verdict.UNKNOWN]
