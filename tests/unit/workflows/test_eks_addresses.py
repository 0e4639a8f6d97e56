"""Addresses of a cluster that does not exist yet."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import IPv4Network

import pytest

from gpuctl.eks.facts import Facts, Type
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.subnets import demand
from gpuctl.subnets.model import Listing, Subnet
from gpuctl.subnets.node_type import Card, NodeType
from gpuctl.workflows.eks_addresses import addresses

NOW = datetime(2026, 7, 1, tzinfo=UTC)
CARD = frozenset({"interface", "efa", "efa-only"})
NODE = NodeType("p4d.24xlarge", [Card(0, 15, CARD), Card(1, 15, CARD)], 0, 50, 4)
TYPE = Type("p4d.24xlarge", 96, "x86_64", frozenset({"use1-az1", "use1-az2"}))
SUBNETS = [
    Subnet(f"subnet-{number}", "vpc-1", IPv4Network(f"10.0.{number}.0/27"), "us-east-1a", f"use1-az{number}", (27,))
    for number in (1, 2)
]


@pytest.mark.parametrize(("layout", "verdict"), [("plain", "OK"), ("efa-only", "FAIL")])
def test_nodes_with_efa_stay_in_one_zone(layout: str, verdict: str) -> None:
    group = NodeGroup("gpu", "p4d.24xlarge", 0, 2, 1, layout=layout)
    cluster = EksCluster("lab", "us-east-1", "1.36", [group], subnets=["subnet-1", "subnet-2"])
    facts = Facts(NOW, "", [], {"p4d.24xlarge": TYPE}, {}, {}, subnet_vpcs=["vpc-1"])
    listing = Listing("us-east-1", NOW, SUBNETS)
    found = addresses(cluster, facts, listing, {"p4d.24xlarge": NODE}, demand.settings(["WARM_IP_TARGET=1"]))
    assert [str(one.verdict) for one in found] == [verdict]
