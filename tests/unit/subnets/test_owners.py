"""Owners of interfaces, from the answers of AWS, and the signs of a leaked interface."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuctl.subnets import read
from gpuctl.subnets.model import Interface, Kind, Owner
from gpuctl.subnets.owners import CLUSTER_TAG, CREATED_TAG, INSTANCE_TAG, Leak, leak, leaked, owner, owners
from tests.rig.recordings import recording
from tests.rig.subnet_model import NOW, subnet

LEAKED = Interface(
    "eni-1",
    "subnet-0",
    "available",
    description="aws-K8S-i-0abc",
    kind="interface",
    tags={
        INSTANCE_TAG: "i-0abc",
        CREATED_TAG: (NOW - timedelta(minutes=6)).isoformat(),
        CLUSTER_TAG: "learning",
    },
)


@pytest.mark.parametrize(
    ("description", "kind", "expected"),
    [
        ("aws-K8S-i-0abc", "interface", Owner(Kind.CNI, "i-0abc")),
        ("aws-k8s-branch-eni", "branch", Owner(Kind.BRANCH)),
        ("Amazon EKS learning", "interface", Owner(Kind.CONTROL_PLANE, "learning")),
        ("Interface for NAT Gateway nat-01", "nat_gateway", Owner(Kind.NAT, "nat-01")),
        ("", "natGateway", Owner(Kind.NAT)),
        ("VPC Endpoint Interface vpce-09", "vpc_endpoint", Owner(Kind.ENDPOINT, "vpce-09")),
        ("ELB net/web/0123", "network_load_balancer", Owner(Kind.LOAD_BALANCER, "web")),
        ("ELB app/web/0123", "interface", Owner(Kind.LOAD_BALANCER, "web")),
        ("ELB classic", "interface", Owner(Kind.LOAD_BALANCER, "classic")),
        ("AWS Lambda VPC ENI-resize-7ac7", "lambda", Owner(Kind.LAMBDA, "resize-7ac7")),
        ("EFS mount target for fs-01 (fsmt-02)", "efs", Owner(Kind.EFS, "fs-01")),
        ("RDSNetworkInterface", "interface", Owner(Kind.RDS)),
        ("", "a_type_of_next_year", Owner(Kind.UNKNOWN)),
    ],
)
def test_the_description_and_type_name_the_owner(description: str, kind: str, expected: Owner) -> None:
    assert owner(Interface("eni-1", "subnet-0", "in-use", description, kind, attached=True)) == expected


def test_an_instance_with_an_interface_of_the_cni_is_a_node() -> None:
    primary = Interface("eni-1", "subnet-0", "in-use", instance="i-1", attached=True)
    other = Interface("eni-2", "subnet-0", "in-use", instance="i-2", attached=True)
    secondary = Interface("eni-3", "subnet-1", "in-use", "aws-K8S-i-1", instance="i-1", attached=True)
    found = owners([subnet("10.0.0.0/24", interfaces=[primary, other]), subnet("10.0.1.0/24", interfaces=[secondary])])
    assert found["eni-1"] == Owner(Kind.NODE, "i-1")
    assert found["eni-2"] == Owner(Kind.INSTANCE, "i-2")


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("branch_lambda_vpce", {Kind.INSTANCE, Kind.LAMBDA, Kind.ENDPOINT, Kind.BRANCH}),
        ("mixed_11_nat_tgw_vpce_instances", {Kind.NAT, Kind.TRANSIT, Kind.ENDPOINT, Kind.INSTANCE, Kind.DETACHED}),
        ("efs_ecs_lambda_10", {Kind.DETACHED, Kind.ECS, Kind.EFS, Kind.SERVICE, Kind.RDS, Kind.LAMBDA}),
        ("nat_and_instance", {Kind.NAT, Kind.INSTANCE}),
    ],
)
def test_every_recorded_interface_has_an_owner(file: str, kinds: set[Kind]) -> None:
    plain = json.loads(recording(f"aws/eni/{file}.json").read_text())
    listed = plain.get("NetworkInterfaces") or plain["data"]["NetworkInterfaces"]
    interfaces = [read.interface(one) for one in listed]
    assert {owner(one).kind for one in interfaces} == kinds
    assert [leak(one, NOW) for one in interfaces] == [Leak.NO] * len(interfaces)


def test_an_interface_with_every_sign_is_leaked() -> None:
    assert leak(LEAKED, NOW) is Leak.YES


@pytest.mark.parametrize(
    "change",
    [
        {"status": "in-use"},
        {"attached": True},
        {"description": "made by hand"},
        {"tags": {**LEAKED.tags, INSTANCE_TAG: ""}},
        {"tags": {**LEAKED.tags, CREATED_TAG: (NOW - timedelta(minutes=4)).isoformat()}},
    ],
)
def test_an_interface_that_lacks_one_sign_is_not_leaked(change: dict[str, object]) -> None:
    assert leak(replace(LEAKED, **change), NOW) is Leak.NO  # type: ignore[arg-type]


@pytest.mark.parametrize("created", ["", "yesterday", "2026-11-01T00:00:00"])
def test_without_a_time_of_creation_it_is_unknown(created: str) -> None:
    assert leak(replace(LEAKED, tags={**LEAKED.tags, CREATED_TAG: created}), NOW) is Leak.UNSURE


def test_interfaces_of_another_cluster_are_not_of_this_one() -> None:
    made = subnet("10.0.0.0/24", interfaces=[LEAKED])
    assert [one.interface.name for one in leaked(made, NOW, "learning")] == ["eni-1"]
    assert leaked(made, NOW, "another") == []
    assert [one.cluster for one in leaked(made, NOW)] == ["learning"]
