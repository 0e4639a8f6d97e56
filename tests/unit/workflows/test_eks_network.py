"""The plan's finding on the network: nodes that would not join, each cause alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.eks.facts import Facts, Type
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.subnets.diagnose import NEEDED
from gpuctl.subnets.model import Listing, Subnet
from gpuctl.subnets.network import (
    ALL_PROTOCOLS,
    ANYWHERE,
    TCP,
    Acl,
    Endpoint,
    Nat,
    Network,
    Route,
    RouteTable,
    Rule,
    Vpc,
)
from gpuctl.subnets.node_type import EFA, EFA_ONLY, PLAIN, Card, NodeType
from gpuctl.workflows.eks_network import network
from tests.rig.subnet_model import listing, subnet

VPC = "vpc-0"
INSIDE = IPv4Network("10.0.0.0/16")
A = replace(subnet("10.0.0.0/24"), name="subnet-a", public_addresses=True)
B = replace(subnet("10.0.1.0/24"), name="subnet-b", public_addresses=True)
OPEN = [Rule(100, outbound, True, ALL_PROTOCOLS, ANYWHERE, None) for outbound in (False, True)]
TCP_ONLY = [replace(rule, protocol=TCP, ports=(0, 65535)) for rule in OPEN]
SMALL = NodeType("g4dn.xlarge", [Card(0, 3, frozenset({PLAIN}))], 0, 10, 0)
LARGE = NodeType("p5.48xlarge", [Card(index, 2, frozenset({PLAIN, EFA, EFA_ONLY})) for index in range(32)], 0, 50, 32)
REFUSED = GpuctlError("list VPC endpoints", "no permission for ec2:DescribeVpcEndpoints", "have it allowed")


def around(target: str = "igw-0", **parts: Any) -> Network:
    """A VPC whose subnets lead out by this target, with an open network ACL and DNS."""
    routes = [Route(INSIDE, "local", True), *([Route(ANYWHERE, target, True)] if target else [])]
    usual = {
        "vpcs": {VPC: Vpc(VPC, [INSIDE], True, True, ["AmazonProvidedDNS"])},
        "tables": [RouteTable("rtb-0", VPC, True, frozenset(), routes)],
        "acls": [Acl("acl-0", VPC, frozenset({A.name, B.name}), OPEN)],
        "endpoints": [],
        "nats": [Nat("nat-0", A.name, "available", True)],
    }
    return Network(**{**usual, **parts})


SERVED = [
    Endpoint(f"vpce-{name}", VPC, name, name == "s3", True, name != "s3", frozenset(), frozenset({"rtb-0"}))
    for name in NEEDED
]


def judged(
    node: NodeType | GpuctlError = SMALL,
    network_around: Network | GpuctlError | None = None,
    subnets: tuple[Subnet, ...] = (A, B),
    listed: Listing | GpuctlError | None = None,
) -> list[Finding]:
    name = node.name if isinstance(node, NodeType) else "p5.48xlarge"
    cluster = EksCluster(
        "lab", "us-east-1", "1.36", [NodeGroup("gpu", name, 0, 4, 2)], subnets=("subnet-a", "subnet-b")
    )
    kinds = {name: Type(name, 4, "x86_64", frozenset({"use1-az6"}))}
    facts = Facts(datetime(2026, 11, 28, tzinfo=UTC), "", [], kinds, {}, {})
    nodes: Mapping[str, NodeType | GpuctlError] = {name: node}
    found = network(cluster, facts, listed or listing(*subnets), nodes, network_around or around())
    assert {one.check for one in found} == {"network"}
    return found


def verdicts(found: list[Finding]) -> list[tuple[str, Verdict]]:
    return [(one.subject, one.verdict) for one in found]


def test_a_small_node_joins_from_a_public_subnet_and_one_with_efa_from_behind_a_nat_gateway() -> None:
    assert verdicts(judged()) == [("lab", Verdict.OK)]
    assert verdicts(judged(LARGE, around("nat-0"))) == [("lab", Verdict.OK)]


def test_a_node_with_several_interfaces_has_no_public_address() -> None:
    (finding,) = judged(LARGE)
    assert (finding.subject, finding.verdict) == ("gpu", Verdict.FAIL)
    assert "only an internet gateway leads out of subnet-a, subnet-b" in finding.message
    assert "an instance with 33 interfaces gets none: nodes do not join" in finding.message
    assert verdicts(judged(LARGE, around(endpoints=SERVED))) == [("lab", Verdict.OK)]


def test_a_public_subnet_that_assigns_no_addresses_is_named_with_the_command() -> None:
    (finding,) = judged(subnets=(A, replace(B, public_addresses=False)))
    assert (finding.subject, finding.verdict) == ("gpu", Verdict.FAIL)
    assert "modify-subnet-attribute --subnet-id subnet-b" in finding.hint
    assert verdicts(judged(subnets=(A, replace(B, public_addresses=None)))) == [("gpu", Verdict.UNKNOWN)]


def test_without_a_way_out_endpoints_are_needed() -> None:
    closed = judged(network_around=around(""))
    assert verdicts(closed) == [("subnet-a", Verdict.FAIL), ("subnet-b", Verdict.FAIL)]
    assert verdicts(judged(network_around=around("", endpoints=SERVED))) == [("lab", Verdict.OK)]


def test_an_acl_without_efas_protocol_matters_only_to_nodes_with_efa() -> None:
    acls = [Acl("acl-0", VPC, frozenset({A.name, B.name}), TCP_ONLY)]
    assert verdicts(judged(SMALL, around("nat-0", acls=acls))) == [("lab", Verdict.OK)]
    found = judged(LARGE, around("nat-0", acls=acls))
    assert {one.verdict for one in found} == {Verdict.WARN}
    assert all("EFA does not work between nodes there" in one.message for one in found)


def test_what_could_not_be_read_is_unknown() -> None:
    assert verdicts(judged(network_around=around(endpoints=REFUSED))) == [("lab", Verdict.OK)]  # a gateway needs none
    assert Verdict.UNKNOWN in {one.verdict for one in judged(network_around=around("", endpoints=REFUSED))}
    assert verdicts(judged(REFUSED)) == [("gpu", Verdict.UNKNOWN)]
    assert verdicts(judged(listed=REFUSED)) == [("lab", Verdict.UNKNOWN)]
    assert verdicts(judged(listed=listing())) == [("lab", Verdict.UNKNOWN)]
    assert {one.verdict for one in judged(network_around=around(tables=REFUSED))} == {Verdict.UNKNOWN}
