"""Judging what was made: each wanted addon and node group has a finding, and no removal is crossed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import create, create_nodes
from gpuctl.eks.maker import Design, Maker
from gpuctl.eks.model import Capacity, EksCluster, NodeGroup
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.wait import ADDONS_UP, GROUPS_UP, TimeUp, Waiter

CLUSTER = EksCluster("lab", "us-east-1", "1.36", [])
OURS = {"gpuctl:cluster": "lab", "gpuctl:region": "us-east-1"}


class StandInAws:
    """Answers from a table: operation -> answer, or a function of the parameters. A text is AWS's error code."""

    region = "us-east-1"

    def __init__(self, **answers: Any) -> None:
        self.answers, self.sent = answers, list[Request]()

    def act(self, request: Request) -> dict[str, Any]:
        self.sent.append(request)
        answer = self.answers.get(request.operation, {})
        answer = answer(request.parameters) if callable(answer) else answer
        if isinstance(answer, str):
            raise GpuctlError(request.doing, answer) from ClientError({"Error": {"Code": answer}}, request.operation)
        return cast(dict[str, Any], answer)

    def read(self, request: Request, convert: Callable[[Any], Any]) -> list[Any]:
        answer = self.act(request)
        return [convert(one) for one in (answer.get(request.items, []) if request.items else [answer])]

    def read_all(self, requests: Mapping[Any, Request], convert: Callable[[Any], Any]) -> dict[Any, Any]:
        answers: dict[Any, Any] = {}
        for key, request in requests.items():
            try:
                answers[key] = self.read(request, convert)
            except GpuctlError as error:
                answers[key] = error
        return answers

    @property
    def changes(self) -> list[str]:
        reading = ("Describe", "List", "Get")
        return [one.operation for one in self.sent if not one.operation.startswith(reading)]


def maker(aws: StandInAws, *objects: Object) -> Maker:
    seconds = [0.0]

    def sleep(passed: float) -> None:
        seconds[0] += passed

    state = State("lab", "us-east-1", list(objects))
    design = Design(CLUSTER, {}, {})
    return Maker(cast(Aws, aws), design, state, Waiter(lambda _: None, sleep, lambda: seconds[0], 10.0))


def group(state: str = "ACTIVE") -> Callable[[Any], Any]:
    return lambda asked: {"nodegroup": {"nodegroupName": asked["nodegroupName"], "status": state, "tags": OURS}}


def test_a_group_that_is_listed_late_is_awaited() -> None:
    lists = iter([[], [], ["gpu"], ["gpu"]])
    aws = StandInAws(ListNodegroups=lambda _: {"nodegroups": next(lists)}, DescribeNodegroup=group())
    found = maker(aws).settled(Kind.GROUP, ["gpu"], GROUPS_UP)["gpu"]
    assert found is not None
    assert found.state == "ACTIVE"


@pytest.mark.parametrize("listed", [[], ["gpu"]])
def test_a_group_that_is_gone_is_a_failure(listed: list[str]) -> None:
    aws = StandInAws(ListNodegroups={"nodegroups": listed}, DescribeNodegroup="ResourceNotFoundException")
    made = maker(aws)
    settled = made.settled(Kind.GROUP, ["gpu"], GROUPS_UP)
    finding = create_nodes.judged_group(made, "gpu", settled["gpu"])
    assert (finding.verdict, finding.subject, "is gone" in finding.message) == (Verdict.FAIL, "gpu", True)


def test_an_addon_that_is_gone_is_a_failure_beside_those_that_are_there() -> None:
    aws = StandInAws(
        ListAddons={"addons": ["vpc-cni"]}, DescribeAddon={"addon": {"addonName": "vpc-cni", "status": "ACTIVE"}}
    )
    settled = maker(aws).settled(Kind.ADDON, ["vpc-cni", "kube-proxy"], ADDONS_UP)
    verdicts = [create.judged_addon(name, one).verdict for name, one in settled.items()]
    assert verdicts == [Verdict.OK, Verdict.FAIL]


def test_a_group_that_never_ends_starting_is_an_error() -> None:
    aws = StandInAws(ListNodegroups={"nodegroups": ["gpu"]}, DescribeNodegroup=group("CREATING"))
    with pytest.raises(TimeUp, match="still gpu CREATING, cpu not listed"):
        maker(aws).settled(Kind.GROUP, ["gpu", "cpu"], GROUPS_UP)


@pytest.mark.parametrize(("kind", "state"), [(Kind.CLUSTER, "DELETING"), (Kind.NAT, "deleting")])
def test_nothing_is_made_in_the_middle_of_a_removal(kind: Kind, state: str) -> None:
    with pytest.raises(InvalidInput, match="its removal has begun") as caught:
        create.refuse_removal(State("lab", "us-east-1", [Object(kind, "x", state=state, ours=True)]))
    assert "gpuctl eks destroy" in caught.value.hint
    create.refuse_removal(State("lab", "us-east-1", [Object(kind, "x", state="ACTIVE", ours=True)]))


def test_a_second_object_of_a_part_is_named_at_the_end() -> None:
    vpcs = [Object(Kind.VPC, name, "vpc", ours=True) for name in ("vpc-1", "vpc-2")]
    [finding] = create.twice(State("lab", "us-east-1", vpcs))
    assert (finding.verdict, finding.subject) == (Verdict.FAIL, "VPC vpc-2 (vpc)")
    assert create.twice(State("lab", "us-east-1", vpcs[:1])) == []


@pytest.mark.parametrize("state", ["CREATE_FAILED", "DELETING"])
def test_a_failed_addon_of_ours_is_removed_and_made_again(state: str) -> None:
    status, deletes = [state], state != "DELETING"
    lists = iter([["coredns"], [], ["coredns"]])

    def make(_: Any) -> dict[str, Any]:
        status[0] = "ACTIVE"
        return {"addon": {"addonName": "coredns", "status": "CREATING"}}

    aws = StandInAws(
        ListAddons=lambda _: {"addons": next(lists)},
        DescribeAddon=lambda _: {"addon": {"addonName": "coredns", "status": status[0].replace("CREATE_F", "F")}},
        CreateAddon=make,
    )
    made = maker(aws, Object(Kind.ADDON, "coredns", "coredns", state, ours=True))
    assert [one.verdict for one in create.addons(made, ["coredns"])] == [Verdict.OK]
    assert aws.changes == [*["DeleteAddon"] * deletes, "CreateAddon"]


@pytest.mark.parametrize(
    ("running", "desired", "verdict"), [(1, 2, Verdict.WARN), (2, 2, Verdict.UNKNOWN), (0, 0, Verdict.OK)]
)
def test_a_block_that_is_active_is_judged_by_its_running_instances(running: int, desired: int, verdict: str) -> None:
    made = maker(StandInAws(DescribeInstances={"Reservations": [{"Instances": [{}]}] * running}))
    block = NodeGroup("gpu", "p5.48xlarge", 0, 2, desired, capacity=Capacity.BLOCK, reservation="cr-1")
    made.design = replace(made.design, cluster=replace(CLUSTER, node_groups=[block]))
    active = Object(Kind.GROUP, "gpu", "gpu", "ACTIVE", data={"scalingConfig": {"desiredSize": desired}})
    assert create_nodes.judged_group(made, "gpu", active).verdict == verdict
