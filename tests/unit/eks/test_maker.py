"""Requests of one run that makes a cluster: lost answers, and objects that AWS does not know yet."""

from __future__ import annotations

from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, NoAnswer, Request, code_of
from gpuctl.eks.maker import Design, Maker
from gpuctl.eks.model import EksCluster
from gpuctl.eks.objects import State
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
    maker = Maker(cast(Aws, aws), Design(CLUSTER, {}, {}, has_gpus=False), State("lab", "us-east-1"), waiter)
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
