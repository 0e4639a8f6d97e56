"""Simulations of a login: roles and attached policies are named; of several resources the worst decision counts."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

from gpuctl.eks import prediction
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.simulation import decisions, simulations

LAB = EksCluster(
    "lab", "us-east-1", "1.36", [NodeGroup("gpu", "g4dn.xlarge", 0, 1, 1)], vpc=IPv4Network("10.20.0.0/16")
)
LOGIN = "arn:aws-us-gov:iam::123456789012:user/alice"


def test_each_action_is_simulated_and_those_on_roles_name_the_roles() -> None:
    made = list(simulations(LAB, LOGIN, has_efa=True))
    assert {name for one in made for name in one["ActionNames"]} == set(prediction.actions(LAB, has_efa=True))
    of_iam = [one for one in made if any(name.startswith("iam:") for name in one["ActionNames"])]
    assert all(one.get("ResourceArns") for one in of_iam)
    assert made[1]["ResourceArns"] == [
        "arn:aws-us-gov:iam::123456789012:role/gpuctl/gpuctl-lab-us-east-1-cluster",
        "arn:aws-us-gov:iam::123456789012:role/gpuctl-lab-us-east-1-node",
    ]


def test_the_worst_decision_counts() -> None:
    rows: list[dict[str, Any]] = [
        {"EvalActionName": "iam:CreateRole", "EvalDecision": "allowed"},
        {"EvalActionName": "iam:CreateRole", "EvalDecision": "implicitDeny"},
        {
            "EvalActionName": "iam:PassRole",
            "EvalDecision": "allowed",
            "ResourceSpecificResults": [{"EvalResourceDecision": "explicitDeny"}],
        },
        {"EvalActionName": "iam:TagRole", "EvalDecision": "allowed"},
    ]
    assert decisions(rows) == {
        "iam:CreateRole": "implicitDeny",
        "iam:PassRole": "explicitDeny",
        "iam:TagRole": "allowed",
    }
