"""Objects around a cluster: to whom volumes and instances belong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks.objects import CLUSTER, REGION, Kind, Object, State
from gpuctl.eks.removal import Choice, claims, obstacles, remaining, rows, snapshots
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_destroy, eks_leftovers, eks_status
from gpuctl.workflows.eks_status import Living
from tests.rig.aws_refusals import refused

CSI = {"ebs.csi.aws.com/cluster": "true", "kubernetes.io/created-for/pvc/name": "data"}
OURS = {CLUSTER: "lab", REGION: "us-east-1"}
GROUP = {"eks:nodegroup-name": "gpu", "eks:cluster-name": "lab", "kubernetes.io/cluster/lab": "owned"}
VPC = Object(Kind.VPC, "vpc-1", "vpc", ours=True)
STATE = State("lab", "us-east-1", [VPC, Object(Kind.SUBNET, "subnet-1", data={"AvailabilityZone": "us-east-1a"})])


def tagged(tags: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()], **more}


def volume(name: str, tags: dict[str, str], on: str = "", root: bool = False, state: str = "in-use") -> dict[str, Any]:
    attached = [{"InstanceId": on, "DeleteOnTermination": root}] if on else []
    return tagged(tags, VolumeId=name, Attachments=attached, State=state, Size=8, AvailabilityZone="us-east-1a")


def instance(name: str, tags: dict[str, str], vpc: str = "vpc-1") -> dict[str, Any]:
    return tagged(tags, InstanceId=name, VpcId=vpc, State={"Name": "running"}, Placement={})


class StandInAws(Aws):
    """Volumes and instances, filtered as EC2 does it."""

    def __init__(self, volumes: list[dict[str, Any]], instances: list[dict[str, Any]]) -> None:
        self.region, self.profile = "us-east-1", ""
        self.refused = set[str]()  # operations without permission
        self.lists = {"DescribeVolumes": volumes, "DescribeInstances": instances}

    def read(self, request: Request, convert: Callable[[Any], Any]) -> list[Any]:
        if request.service == "elb":
            return []
        if request.operation in self.refused:
            raise refused("AccessDeniedException", "no permission")
        if not request.items:  # one object, such as a role or the cluster
            raise refused("NotFound")
        found = [
            one
            for one in self.lists.get(request.operation, ())
            if all(
                _passes(one, each)
                for each in request.parameters.get("Filters") or request.parameters.get("Filter") or ()
            )
        ]
        wrapped = [{"Instances": found}] if request.operation == "DescribeInstances" else found
        return [convert(one) for one in wrapped]


def _passes(one: dict[str, Any], wanted: dict[str, Any]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
    name = wanted["Name"]
    values = {
        "tag-key": list(tags),
        "ip-permission.group-id": [
            pair["GroupId"] for rule in one.get("IpPermissions", ()) for pair in rule["UserIdGroupPairs"]
        ],
        "vpc-id": [one.get("VpcId")],
        "volume-id": [one.get("VolumeId")],
        "instance-id": [one.get("InstanceId")],
        "nat-gateway-id": [one.get("NatGatewayId")],
        "vpc-endpoint-id": [one.get("VpcEndpointId")],
        "allocation-id": [one.get("AllocationId")],
        "availability-zone": [one.get("AvailabilityZone")],
        "attachment.instance-id": [attached["InstanceId"] for attached in one.get("Attachments", ())],
    }.get(name, [tags.get(name.removeprefix("tag:"))])
    return any(value in wanted["Values"] for value in values)


def test_a_volume_without_a_tag_of_the_cluster_is_known_by_its_node() -> None:
    volumes = [
        *[volume("vol-1", CSI, "i-1"), volume("vol-2", OURS, "i-1", root=True), volume("vol-3", {}, "i-1")],
        *[volume("vol-4", CSI, "i-8"), volume("vol-5", CSI, state="available")],
        volume("vol-6", {**CSI, "kubernetes.io/cluster/other": "owned"}, state="available"),
    ]
    around = eks_destroy.around(StandInAws(volumes, [instance("i-1", GROUP)]), STATE)
    assert [one.name for one in claims(around)] == ["vol-1"]
    assert around.unassigned == {"vol-3", "vol-5"}
    assert [one.check for one in obstacles(STATE, around, Choice())] == ["volumes"]
    goes = {row.item.name for row in rows(STATE, around, Choice("delete")) if row.goes and row.item.kind is Kind.VOLUME}
    assert goes == {"vol-1"}
    verdicts = {one.subject: str(one.verdict) for one in remaining(State("lab", "us-east-1"), around, Choice("keep"))}
    assert (verdicts["vol-1"], verdicts["vol-3"], verdicts["vol-5"]) == ("WARN", "UNKNOWN", "UNKNOWN")


@pytest.mark.parametrize(
    ("tags", "vpc", "stops"),
    [
        (GROUP, "vpc-1", False),
        ({"kubernetes.io/cluster/lab": "owned", "karpenter.sh/nodepool": "gpu"}, "vpc-9", True),
        ({}, "vpc-1", True),
        ({**GROUP, "eks:cluster-name": "other"}, "vpc-1", True),
    ],
)
def test_instances_that_no_node_group_takes_along_stop_a_removal(tags: dict[str, str], vpc: str, stops: bool) -> None:
    around = eks_destroy.around(StandInAws([], [instance("i-1", tags, vpc)]), STATE)
    found = obstacles(STATE, around, Choice())
    assert [one.check for one in found] == ["instance"] * stops


def test_disks_of_nodes_and_volumes_that_go_already_ask_for_no_choice() -> None:
    volumes = [
        volume("vol-1", OURS, state="available"),
        *[volume("vol-2", {**OURS, **CSI}, state="deleting"), volume("vol-3", OURS, state="deleted")],
    ]
    around = eks_destroy.around(StandInAws(volumes, []), STATE)
    assert [one.name for one in around.of(Kind.VOLUME)] == ["vol-1"]
    assert obstacles(STATE, around, Choice()) == []
    assert [row.goes for row in rows(STATE, around, Choice()) if row.item.kind is Kind.VOLUME] == [True]


def test_a_load_balancer_with_deletion_protection_stops_a_removal() -> None:
    aws = StandInAws([], [])
    aws.lists["DescribeLoadBalancers"] = [{"LoadBalancerArn": "arn:lb", "LoadBalancerName": "lb", "VpcId": "vpc-1"}]
    aws.lists["DescribeTags"] = [tagged({"elbv2.k8s.aws/cluster": "lab"}, ResourceArn="arn:lb")]
    aws.lists["DescribeLoadBalancerAttributes"] = [{"Key": "deletion_protection.enabled", "Value": "true"}]
    around = eks_destroy.around(aws, STATE)
    assert [(one.check, one.subject) for one in obstacles(STATE, around, Choice())] == [("protection", "lb")]


def test_a_cluster_of_which_only_a_kept_volume_is_left_is_still_known() -> None:
    kept = volume("vol-1", {**CSI, "kubernetes.io/cluster/lab": "owned"}, state="available")
    assert eks_destroy.known(StandInAws([kept], []), "lab").objects == []
    for nothing in ([], [volume("vol-2", CSI, state="available")]):
        with pytest.raises(InvalidInput, match="nothing of it"):
            eks_destroy.known(StandInAws(nothing, []), "lab")


def test_rules_of_others_that_name_our_groups_are_named_before_anything_goes() -> None:
    def group(name: str, tags: dict[str, str], *names: str) -> dict[str, Any]:
        rules = [{"UserIdGroupPairs": [{"GroupId": one} for one in names]}]
        return tagged(tags, GroupId=name, GroupName=name, VpcId="vpc-1", IpPermissions=rules)

    aws = StandInAws([], [])
    made = {"aws:eks:cluster-name": "lab"}
    aws.lists["DescribeSecurityGroups"] = [group("sg-1", made), group("sg-2", made, "sg-1"), group("sg-9", {}, "sg-1")]
    around = eks_destroy.around(aws, STATE)
    assert around.named_by == {"sg-1": ["sg-9 (sg-9)"]}
    found = eks_destroy.preview(STATE, around, Choice())[1]
    assert any(one.subject == "sg-1" and "sg-9" in one.message for one in found)


def test_without_the_right_to_list_log_groups_all_else_can_be_removed() -> None:
    aws = StandInAws([volume("vol-1", OURS, state="available")], [])
    aws.refused.add("DescribeLogGroups")
    around = eks_destroy.around(aws, STATE)
    assert [one.name for one in around.of(Kind.VOLUME)] == ["vol-1"]
    found = eks_destroy.preview(STATE, around, Choice())[1]
    assert [(one.check, str(one.verdict)) for one in found] == [("logs", "UNKNOWN")]
    assert "log groups of lab were not searched" in found[0].message
    assert [str(one.verdict) for one in remaining(STATE, around, Choice()) if one.check == "logs"] == ["UNKNOWN"]
    with pytest.raises(GpuctlError, match="no permission"):
        eks_destroy.preview(STATE, around, Choice(logs="delete"))
    nothing = StandInAws([], [])
    nothing.refused.add("DescribeLogGroups")
    with pytest.raises(InvalidInput, match="log groups were not searched"):
        eks_destroy.known(nothing, "lab")


def snapshot(name: str, volume: str, tags: dict[str, str]) -> dict[str, Any]:
    return tagged(tags, SnapshotId=name, VolumeId=volume, State="completed")


def test_snapshots_are_known_by_a_tag_or_by_their_volume_and_others_are_unknown() -> None:
    other = {"kubernetes.io/cluster/other": "owned"}
    aws = StandInAws([volume("vol-1", CSI, "i-1"), volume("vol-9", CSI, "i-9")], [instance("i-1", GROUP)])
    aws.lists["DescribeSnapshots"] = [
        *[snapshot("snap-1", "vol-1", {}), snapshot("snap-2", "vol-7", {"kubernetes.io/cluster/lab": "owned"})],
        *[snapshot("snap-3", "vol-8", CSI), snapshot("snap-4", "vol-9", CSI), snapshot("snap-5", "vol-8", other)],
        snapshot("snap-6", "vol-8", {**CSI, **other}),
    ]
    around = eks_destroy.around(aws, STATE)
    assert [one.name for one in snapshots(around)] == ["snap-2", "snap-1"]
    assert around.unassigned == {"snap-3"}
    assert [one.check for one in obstacles(STATE, around, Choice("keep"))] == ["snapshots"]
    assert obstacles(STATE, around, Choice("keep", "", "keep")) == []
    fates = rows(STATE, around, Choice("keep", "", "delete"))
    assert {row.item.name for row in fates if row.goes and row.item.kind is Kind.SNAPSHOT} == {"snap-1", "snap-2"}
    left = {one.subject: str(one.verdict) for one in remaining(State("lab", ""), around, Choice("keep", "", "keep"))}
    assert left == {"i-1": "FAIL", "vol-1": "WARN", "snap-1": "WARN", "snap-2": "WARN", "snap-3": "UNKNOWN"}


def test_what_other_services_have_of_a_cluster_stays_and_is_named_at_the_end() -> None:
    repository = "arn:aws:ecr:us-east-1:1:repository/team/"
    files = "arn:aws:fsx:us-east-1:1:file-system/fs-1"
    aws = StandInAws([], [])
    aws.lists["GetResources"] = [
        *[tagged(OURS, ResourceARN=f"{repository}pod"), tagged(OURS, ResourceARN=f"{repository}gone")],
        *[tagged(OURS, ResourceARN=files), tagged(OURS, ResourceARN="arn:aws:ec2:us-east-1:1:instance/i-1")],
    ]
    aws.lists["DescribeRepositories"] = [{"repositoryName": "team/pod"}]
    aws.lists["DescribeStacks"] = [
        tagged({}, StackName=name, StackStatus="CREATE_FAILED")
        for name in ("eksctl-lab-cluster", "eksctl-lab-nodegroup-gpu", "eksctl-lab-2-cluster", "web")
    ]
    around = eks_destroy.around(aws, STATE)
    findings = remaining(State("lab", ""), around, Choice())
    assert {one.subject: str(one.verdict) for one in findings} == {
        "eksctl-lab-cluster": "FAIL",
        "eksctl-lab-nodegroup-gpu": "FAIL",
        "team/pod": "WARN",
        files: "UNKNOWN",
    }
    assert not any(row.goes for row in rows(State("lab", ""), around, Choice()))
    assert "aws ecr delete-repository --force --repository-name team/pod" in findings[-2].hint + findings[-1].hint


def test_a_target_group_goes_with_the_cluster_and_needs_no_confirmation() -> None:
    aws = StandInAws([], [])
    names = {"arn:1": {"elbv2.k8s.aws/cluster": "lab"}, "arn:2": {"elbv2.k8s.aws/cluster": "other"}, "arn:3": {}}
    aws.lists["DescribeTargetGroups"] = [
        {"TargetGroupArn": one, "TargetGroupName": one[-1], "VpcId": "vpc-1"} for one in names
    ]
    aws.lists["DescribeTags"] = [tagged(tags, ResourceArn=arn) for arn, tags in names.items()]
    fates = rows(STATE, eks_destroy.around(aws, STATE, [Kind.TARGET_GROUP]), Choice())
    groups = [row for row in fates if row.item.kind is Kind.TARGET_GROUP]
    assert [(row.item.name, row.goes, row.is_foreign) for row in groups] == [("1", True, False)]


def test_a_nat_gateway_of_others_in_our_vpc_is_named_before_anything_goes() -> None:
    aws = StandInAws([], [])
    aws.lists["DescribeNatGateways"] = [
        tagged({}, NatGatewayId=name, VpcId="vpc-1", State=state)
        for name, state in (("nat-1", "available"), ("nat-2", "deleted"))
    ]
    found = eks_destroy.preview(STATE, eks_destroy.around(aws, STATE), Choice())[1]
    assert [one.subject for one in found if one.check == "foreign"] == ["nat-1"]


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        *[("DescribeLogGroups", "log groups"), ("DescribeTargetGroups", "target groups")],
        *[("DescribeSnapshots", "snapshots"), ("DescribeStacks", "CloudFormation stacks")],
        *[("GetResources", "tagged resources"), ("DescribeRepositories", "ECR repositories")],
    ],
)
def test_a_kind_that_may_not_be_listed_is_unknown_and_the_others_are_listed(operation: str, words: str) -> None:
    aws = StandInAws([], [])
    aws.lists["GetResources"] = [tagged(OURS, ResourceARN="arn:aws:ecr:us-east-1:1:repository/pod")]
    aws.refused.add(operation)
    findings = remaining(State("lab", ""), eks_destroy.around(aws, STATE), Choice())
    assert any(words in one.message and str(one.verdict) == "UNKNOWN" for one in findings)
    assert "OK" not in [str(one.verdict) for one in findings]


def test_reap_names_what_it_is_about_to_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    started, lines = list[str](), list[str]()
    kept = {**volume("vol-1", {**OURS, **CSI}, state="available"), "CreateTime": "2026-01-01T00:00:00Z"}

    def run(*_: object) -> list[Finding]:
        started.append(lines[-1])
        return []

    monkeypatch.setattr(eks_destroy, "known", lambda *_: STATE)
    monkeypatch.setattr(eks_destroy, "run", run)
    late = [Living("lab", "us-east-1", None)]
    waiter = Waiter(lines.append, lambda _: None)
    assert eks_status.reap(lambda _: StandInAws([kept], []), late, Choice("delete"), waiter) == []
    assert started
    assert "goes   volume vol-1: made by Kubernetes for a claim" in lines


class VanishingAws(StandInAws):
    """Refuses tags of several objects as a whole if one of them is gone, as Elastic Load Balancing does."""

    def read(self, request: Request, convert: Callable[[Any], Any]) -> list[Any]:
        if request.operation != "DescribeTags":
            return super().read(request, convert)
        arns = request.parameters["ResourceArns"]
        if "arn:gone" in arns:
            raise refused("TargetGroupNotFound" if request.doing.endswith("target groups") else "LoadBalancerNotFound")
        return [convert(tagged({"elbv2.k8s.aws/cluster": "lab"}, ResourceArn=one)) for one in arns]


def test_one_load_balancer_or_target_group_that_is_gone_meanwhile_does_not_hide_the_others() -> None:
    aws = VanishingAws([], [])
    names = ("web", "gone", "api")
    aws.lists["DescribeLoadBalancers"] = [
        {"LoadBalancerArn": f"arn:{name}", "LoadBalancerName": name, "VpcId": "vpc-1"} for name in names
    ]
    aws.lists["DescribeTargetGroups"] = [
        {"TargetGroupArn": f"arn:{name}", "TargetGroupName": name, "VpcId": "vpc-1"} for name in names
    ]
    around = eks_destroy.around(aws, STATE)
    for kind in (Kind.LOAD_BALANCER, Kind.TARGET_GROUP):
        assert {one.name for one in around.of(kind)} == {"web", "api"}
    assert {str(one.verdict) for one in remaining(State("lab", "us-east-1"), around, Choice())} == {"FAIL"}


@pytest.mark.parametrize(("of", "listed"), [("gpu-addon-lab", []), ("gpu", ["eksctl-gpu-addon-lab-cluster"])])
def test_the_tag_of_eksctl_says_of_which_cluster_a_stack_is(of: str, listed: list[str]) -> None:
    aws = StandInAws([], [])
    tags = {"alpha.eksctl.io/cluster-name": of}
    aws.lists["DescribeStacks"] = [tagged(tags, StackName="eksctl-gpu-addon-lab-cluster", StackStatus="OK")]
    around = eks_destroy.around(aws, State("gpu", "us-east-1"))
    assert [one.name for one in around.of(Kind.STACK)] == listed


ARN = "arn:aws:ec2:us-east-1:1:"


def test_what_costs_and_has_a_tag_that_its_own_listing_does_not_search_is_named_until_it_is_gone() -> None:
    """As endpoints, NAT gateways and addresses around subnets that the user gave."""
    eksctl = {"alpha.eksctl.io/cluster-name": "lab"}
    aws = StandInAws([volume("vol-1", eksctl, "i-1", root=True), volume("vol-2", eksctl)], [instance("i-1", GROUP)])
    aws.lists["DescribeNatGateways"] = [
        tagged(eksctl, NatGatewayId=name, VpcId="vpc-9", State=state)
        for name, state in (("nat-1", "available"), ("nat-2", "deleted"))
    ]
    aws.lists["DescribeVpcEndpoints"] = [tagged(OURS, VpcEndpointId="vpce-1", VpcId="vpc-9", State="available")]
    aws.lists["DescribeAddresses"] = [tagged(eksctl, AllocationId="eipalloc-1")]
    arns = {
        *("vpc-endpoint/vpce-1", "vpc-endpoint/vpce-gone", "natgateway/nat-1", "natgateway/nat-2", "natgateway/nat-3"),
        *("elastic-ip/eipalloc-1", "instance/i-1", "volume/vol-1", "volume/vol-2", "subnet/subnet-9"),
    }
    aws.lists["GetResources"] = [tagged(eksctl, ResourceARN=f"{ARN}{one}") for one in sorted(arns)]
    around = eks_destroy.around(aws, STATE)
    left = {"vpc-endpoint/vpce-1", "natgateway/nat-1", "elastic-ip/eipalloc-1", "volume/vol-2"}
    assert {one.name.removeprefix(ARN) for one in around.of(Kind.OTHER)} == left
    findings = {one.subject: str(one.verdict) for one in remaining(State("lab", "us-east-1"), around, Choice())}
    assert findings[f"{ARN}natgateway/nat-1"] == "UNKNOWN"
    aws.refused.add("DescribeNatGateways")  # then nothing shows that one is gone
    aws.lists["DescribeNatGateways"] = []
    others = eks_leftovers.read(aws, "lab", [Kind.OTHER], [], ["i-1"]).objects
    assert {one.name.removeprefix(ARN) for one in others} == {*left, "natgateway/nat-2", "natgateway/nat-3"}


def test_a_repository_without_the_tag_of_the_region_is_listed() -> None:
    aws = StandInAws([], [])
    aws.lists["GetResources"] = [tagged({CLUSTER: "lab"}, ResourceARN="arn:aws:ecr:us-east-1:1:repository/pod")]
    aws.lists["DescribeRepositories"] = [{"repositoryName": "pod"}]
    assert [one.name for one in eks_destroy.around(aws, STATE).of(Kind.REPOSITORY)] == ["pod"]
