"""Routes, subnets and the NAT gateway of a VPC of its own, where an earlier run or somebody else left something."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.eks import create_network
from gpuctl.eks.objects import Kind, Object
from tests.unit.eks.test_create import CLUSTER, StandInAws, maker

ROLE = Object(Kind.ROLE, "role", "cluster", ours=True, data={"RoleId": "AROA1", "Arn": "arn:aws:iam::1:role/r"})
SUBNET = Object(Kind.SUBNET, "subnet-1", "private-0", ours=True)
TARGET = {"NatGatewayId": "nat-1"}
ACTIVE = {"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **TARGET}


@pytest.mark.parametrize(
    ("route", "change"),
    [
        ({}, ["CreateRoute"]),
        (ACTIVE, []),
        ({**ACTIVE, "State": "blackhole"}, ["ReplaceRoute"]),
        ({**ACTIVE, "NatGatewayId": "nat-2"}, ["ReplaceRoute"]),
        ({"DestinationCidrBlock": "0.0.0.0/0", "State": "active", "GatewayId": "igw-1"}, ["ReplaceRoute"]),
    ],
)
def test_the_default_route_leads_to_its_target_and_is_active(route: dict[str, Any], change: list[str]) -> None:
    aws = StandInAws()
    data = {"Routes": [route], "Associations": [{"SubnetId": "subnet-1"}]}
    table = Object(Kind.ROUTES, "rtb-1", "private", ours=True, data=data)
    create_network.routes(maker(aws, ROLE, table), "private", "vpc-1", TARGET, [SUBNET])
    assert aws.changes == change


def test_each_subnet_gets_its_route_table_also_one_that_the_state_does_not_have() -> None:
    aws = StandInAws()
    table = Object(Kind.ROUTES, "rtb-1", "private", ours=True, data={"Routes": [ACTIVE]})
    create_network.routes(maker(aws, ROLE, table), "private", "vpc-1", TARGET, [SUBNET])
    assert aws.sent[-1].parameters == {"RouteTableId": "rtb-1", "SubnetId": "subnet-1"}


def test_no_nat_gateway_is_asked_for_without_its_subnet() -> None:
    aws = StandInAws()
    address = Object(Kind.ADDRESS, "eipalloc-1", "nat", ours=True)
    with pytest.raises(GpuctlError, match="subnet public-0"):
        create_network.nat(maker(aws, ROLE, address))
    assert aws.changes == []


def test_only_subnets_of_ours_keep_their_zone() -> None:
    zones = {"AvailabilityZones": [{"ZoneId": f"use1-az{number}", "State": "available"} for number in (1, 2, 4, 6)]}
    data = {"AvailabilityZoneId": "use1-az6"}
    others = [
        Object(Kind.SUBNET, "subnet-2", "storage", ours=True, data=data),
        Object(Kind.SUBNET, "subnet-3", "", ours=True, data=data),
        Object(Kind.SUBNET, "subnet-4", "private-1", data=data),
    ]
    made = maker(StandInAws(DescribeAvailabilityZones=zones), *others)
    own = replace(CLUSTER, vpc=IPv4Network("10.0.0.0/16"))
    made.design = replace(made.design, cluster=own, needed_zones={"gpu": frozenset({"use1-az1"})})
    assert {one.zone_id for one in create_network.places(made)} == {"use1-az1", "use1-az2", "use1-az4"}
    made.state.add(replace(SUBNET, data=data))
    assert create_network.places(made)[0].zone_id == "use1-az6"
