"""Objects that exist before a cluster is made."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.eks.facts import Facts, PlacementGroup
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.parts import parts
from gpuctl.eks.prediction import name
from tests.unit.eks.test_prediction import FACTS

LAB = EksCluster("lab", "us-east-1", "1.36", [NodeGroup("x", "p5.48xlarge", 0, 1, 1, placement="cluster")])


def role(document: Any, *, ours: bool = True) -> Object:
    return Object(Kind.ROLE, "role", "cluster", ours=ours, data={"AssumeRolePolicyDocument": document})


def trusting(service: Any, effect: str = "Allow") -> dict[str, Any]:
    return {"Statement": {"Effect": effect, "Principal": {"Service": service}}}


def found(*objects: Object, **facts: Any) -> list[str]:
    whole: Facts = replace(FACTS, state=State("lab", "us-east-1", list(objects)), **facts)
    return [one.message for one in parts(LAB, whole) if one.verdict is not Verdict.OK]


@pytest.mark.parametrize(
    "document",
    [
        trusting("eks.amazonaws.com"),
        trusting(["ec2.amazonaws.com", "eks.amazonaws.com"]),
        quote(json.dumps(trusting("eks.amazonaws.com"))),
    ],
)
def test_a_role_that_eks_can_assume_is_fine(document: Any) -> None:
    assert found(role(document)) == []


@pytest.mark.parametrize(
    "document",
    [trusting("ec2.amazonaws.com"), trusting("eks.amazonaws.com", "Deny"), {"Statement": ["x"]}, "%7B", "[]", None],
)
def test_a_role_that_eks_cannot_assume_is_named(document: Any) -> None:
    [message] = found(role(document))
    assert "does not trust eks.amazonaws.com" in message


def test_a_role_that_trusts_anybody_is_not_judged() -> None:
    document = {"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}
    state = State("lab", "us-east-1", [role(document)])
    [one] = parts(LAB, replace(FACTS, state=state))
    assert (one.verdict, "names anybody" in one.message) == (Verdict.UNKNOWN, True)


def test_the_name_of_a_cluster_that_gpuctl_made_is_not_taken() -> None:
    for ours, verdict in ((True, Verdict.OK), (False, Verdict.FAIL)):
        state = State("lab", "us-east-1", [Object(Kind.CLUSTER, "lab", ours=ours)])
        assert name(LAB, replace(FACTS, cluster="EKS lists it", state=state))[0].verdict is verdict


def test_names_in_use_parts_made_twice_and_a_removal_are_named() -> None:
    template = Object(Kind.TEMPLATE, "lt-1")
    theirs = {"gpuctl-lab.x": PlacementGroup("gpuctl-lab.x", "cluster", "available")}
    vpcs = [Object(Kind.VPC, f"vpc-{number}", "vpc", ours=True) for number in range(2)]
    going = Object(Kind.NAT, "nat-1", "nat", "deleting", ours=True)
    assert "does not have gpuctl's tags" in found(role(None, ours=False))[0]
    assert "does not have gpuctl's tags" in found(templates=[template])[0]
    assert "does not have gpuctl's tags" in found(placement_groups=theirs)[0]
    assert found(Object(Kind.PLACEMENT, "gpuctl-lab.x", "x", ours=True), placement_groups=theirs) == []
    assert "more than one of this part" in found(*vpcs)[0]
    assert found(going) == ["its removal has begun (NAT gateway nat-1 (nat) is deleting)"]
