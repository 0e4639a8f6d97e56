"""Requests of one run that makes a cluster: lost answers, and objects that AWS does not know yet."""

from __future__ import annotations

from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, NoAnswer, Request, code_of
from gpuctl.eks import state as states
from gpuctl.eks.maker import Design, Maker
from gpuctl.eks.model import EksCluster
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.wait import Waiter

LOST = "lost"
CLUSTER = EksCluster("lab", "us-east-1", "1.36", [])


class StandInAws:
    """Answers with these codes first; LOST for no answer."""

    def __init__(self, *codes: str) -> None:
        self.codes, self.calls = list(codes), 0

    def act(self, request: Request) -> dict[str, Any]:
        self.calls += 1
        if not self.codes:
            return {"done": True}
        code = self.codes.pop(0)
        if code == LOST:
            raise NoAnswer(request.doing, "no answer")
        raise GpuctlError(request.doing, code) from ClientError({"Error": {"Code": code}}, request.operation)


def attach(aws: StandInAws) -> dict[str, Any]:
    waiter = Waiter(lambda _: None, lambda _: None)
    maker = Maker(cast(Aws, aws), Design(CLUSTER, {}, {}), State("lab", "us-east-1"), waiter)
    return maker.act("attach it", "ec2", "AttachInternetGateway", {})


@pytest.mark.parametrize(
    "codes",
    [[], [LOST], ["InvalidVpcID.NotFound"], ["NoSuchEntity", "NoSuchEntity"], [LOST, "Resource.AlreadyAssociated"]],
)
def test_a_change_is_done_once_aws_knows_its_objects(codes: list[str]) -> None:
    assert attach(StandInAws(*codes)) in ({"done": True}, {})


@pytest.mark.parametrize(
    ("codes", "calls"),
    [(["Resource.AlreadyAssociated"], 1), ([LOST] * 4, 4), (["InvalidVpcID.NotFound"] * 4, 4), (["AccessDenied"], 1)],
)
def test_other_refusals_are_errors(codes: list[str], calls: int) -> None:
    aws = StandInAws(*codes)
    with pytest.raises(GpuctlError) as caught:
        attach(aws)
    assert (aws.calls, code_of(caught.value) or LOST) == (calls, codes[0])


def lost(monkeypatch: pytest.MonkeyPatch, kind: Kind, listed_at: int) -> tuple[list[float], Maker]:
    """A request without an answer that was carried out; AWS lists only its object, from the n-th look on."""
    slept: list[float] = []
    made = Object(kind, "new", "part", ours=True)

    def read(*_: object) -> State:
        return State("lab", "us-east-1", [made] if len(slept) >= listed_at else [])

    monkeypatch.setattr(states, "read", read)
    waiter = Waiter(lambda _: None, slept.append, every_s=10)
    state = State("lab", "us-east-1", [Object(Kind.SUBNET, "subnet-1", "private-0", ours=True)])
    maker = Maker(cast(Aws, StandInAws(LOST)), Design(CLUSTER, {}, {}), state, waiter)
    return slept, maker


def test_what_was_confirmed_stays_known_after_a_lost_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    _, maker = lost(monkeypatch, Kind.VPC, 1)
    assert maker.ensure(Kind.VPC, "part", lambda: Request("make it", "ec2", "CreateVpc"), "").name == "new"
    assert maker.needed(Kind.SUBNET, "private-0").name == "subnet-1"
    with pytest.raises(GpuctlError, match="subnet private-1"):
        maker.needed(Kind.SUBNET, "private-1")


@pytest.mark.parametrize("kind", [Kind.VPC, Kind.GATEWAY, Kind.ADDRESS])
def test_an_object_without_a_token_is_looked_for_a_minute_before_a_repeat(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    slept, maker = lost(monkeypatch, kind, 5)
    assert maker.ensure(kind, "part", lambda: Request("make it", "ec2", "Create"), "").name == "new"
    assert (sum(slept), cast(Any, maker.aws).calls) == (50, 1)
    slept, maker = lost(monkeypatch, kind, 99)
    assert maker.ensure(kind, "part", lambda: Request("make it", "ec2", "Create"), "").name == "part"
    assert (sum(slept), cast(Any, maker.aws).calls) == (60, 2)
