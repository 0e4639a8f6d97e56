"""Findings of `subnets diagnose`, and the decisions of network ACLs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.subnets.diagnose import NEEDED, diagnose
from gpuctl.subnets.model import Interface, Subnet
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
    allowed_share,
    service_of,
)
from tests.rig.subnet_model import listing, subnet

VPC = "vpc-0"
AMAZON = ["AmazonProvidedDNS"]
INSIDE = IPv4Network("10.0.0.0/16")
OPEN = [Rule(100, outbound, True, ALL_PROTOCOLS, ANYWHERE, None) for outbound in (False, True)]
HOME = subnet("10.0.0.0/24")
BESIDE = replace(subnet("10.0.1.0/24"), name="subnet-1")
REFUSED = GpuctlError("list route tables", "no permission for ec2:DescribeRouteTables", "have it allowed")


def table(*routes: Route) -> RouteTable:
    return RouteTable("rtb-0", VPC, True, frozenset(), [Route(INSIDE, "local", True), *routes])


def network(**parts: Any) -> Network:
    """A VPC with a NAT gateway, an open network ACL and DNS."""
    usual = {
        "vpcs": {VPC: Vpc(VPC, [INSIDE], True, True, AMAZON)},
        "tables": [table(Route(ANYWHERE, "nat-0", True))],
        "acls": [Acl("acl-0", VPC, frozenset({HOME.name, BESIDE.name}), OPEN)],
        "endpoints": [],
        "nats": [Nat("nat-0", HOME.name, "available", True)],
    }
    return Network(**{**usual, **parts})


def problems(around: Network, *subnets: Subnet) -> dict[str, Finding]:
    """Check -> finding that is not OK, of the first subnet and the VPC."""
    found = diagnose(listing(*(subnets or (HOME,))), around)
    assert {finding.check for finding in found} >= {"fragmentation", "routes", "endpoints", "dns"}
    return {one.check: one for one in found if one.verdict is not Verdict.OK and one.subject in (HOME.name, VPC)}


def test_a_subnet_behind_a_nat_gateway_is_well() -> None:
    assert problems(network(), HOME, BESIDE) == {}


def test_a_subnet_without_a_way_out_needs_endpoints() -> None:
    closed = problems(network(tables=[table()]))["endpoints"]
    assert (closed.verdict, "no endpoint serves ec2, ecr.api, ecr.dkr, s3, sts" in closed.message) == (
        Verdict.FAIL,
        True,
    )
    served = [
        Endpoint(f"vpce-{name}", VPC, name, name == "s3", True, name != "s3", frozenset(), frozenset({"rtb-0"}))
        for name in NEEDED
    ]
    assert "endpoints" not in problems(network(tables=[table()], endpoints=served))
    without_dns = [replace(one, private_dns=False) if one.service == "sts" else one for one in served]
    assert "serves sts" in problems(network(tables=[table()], endpoints=without_dns))["endpoints"].message
    elsewhere = [replace(one, route_tables=frozenset({"rtb-9"})) for one in served]
    assert "serves s3:" in problems(network(tables=[table()], endpoints=elsewhere))["endpoints"].message


@pytest.mark.parametrize(
    ("nats", "verdict"),
    [
        ([Nat("nat-0", HOME.name, "failed", True)], Verdict.FAIL),
        ([Nat("nat-0", HOME.name, "available", False)], Verdict.UNKNOWN),
        ([], Verdict.UNKNOWN),
        (REFUSED, Verdict.UNKNOWN),
    ],
)
def test_only_a_public_nat_gateway_that_works_leads_out(nats: Any, verdict: Verdict) -> None:
    assert problems(network(nats=nats))["endpoints"].verdict is verdict


def test_what_the_owner_of_a_shared_subnet_hides_is_unknown() -> None:
    shared = replace(HOME, shared_by="210987654321")
    hidden = problems(network(nats=[]), shared)
    assert (hidden["routes"].verdict, hidden["endpoints"].verdict) == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    assert "210987654321" in hidden["routes"].hint
    assert problems(network(tables=[table()]), shared)["endpoints"].verdict is Verdict.UNKNOWN


def test_two_halves_are_a_default_route() -> None:
    halves = [Route(IPv4Network(block), "tgw-1", True) for block in ("0.0.0.0/1", "128.0.0.0/1")]
    assert problems(network(tables=[table(*halves)]))["endpoints"].verdict is Verdict.UNKNOWN
    part = Route(IPv4Network("3.0.0.0/8"), "igw-1", True)
    assert problems(network(tables=[table(part)]))["endpoints"].verdict is Verdict.UNKNOWN
    inside = Route(IPv4Network("10.0.0.0/8"), "tgw-1", True)
    assert problems(network(tables=[table(inside)]))["endpoints"].verdict is Verdict.FAIL


def test_what_lies_behind_a_transit_gateway_is_unknown() -> None:
    found = problems(network(tables=[table(Route(ANYWHERE, "tgw-1", True))]))
    assert found["endpoints"].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("around", "verdict", "words"),
    [
        (network(nats=[Nat("nat-0", "x", "failed", True)]), Verdict.FAIL, "nat-0, which is failed"),
        (network(nats=[]), Verdict.FAIL, "nat-0, which does not exist"),
        (network(tables=[table(Route(ANYWHERE, "igw-1", True))]), Verdict.WARN, "gets no public address"),
        (
            network(tables=[table(Route(ANYWHERE, "nat-0", True), Route(IPv4Network("10.9.0.0/16"), "pcx-1", False))]),
            Verdict.FAIL,
            "the route to 10.9.0.0/16 leads to pcx-1, which is gone",
        ),
        (network(tables=REFUSED), Verdict.UNKNOWN, "no permission for ec2:DescribeRouteTables"),
        (network(tables=[]), Verdict.UNKNOWN, "no route table"),
    ],
)
def test_routes(around: Network, verdict: Verdict, words: str) -> None:
    finding = problems(around)["routes"]
    assert (finding.verdict, words in finding.message) == (verdict, True), finding


def test_a_nat_gateway_of_another_zone() -> None:
    beyond = replace(BESIDE, zone_id="use1-az1")
    found = problems(network(nats=[Nat("nat-0", beyond.name, "available", True)]), HOME, beyond)
    assert "nat-0 in use1-az1" in found["routes"].message


def acl(*rules: Rule) -> list[Acl]:
    return [Acl("acl-0", VPC, frozenset({HOME.name, BESIDE.name}), rules)]


def test_an_acl_for_tcp_alone_stops_efa_between_subnets_and_not_inside_one() -> None:
    tcp = [Rule(100, outbound, True, TCP, ANYWHERE, (0, 65535)) for outbound in (False, True)]
    found = problems(network(acls=acl(*tcp)), HOME, BESIDE)["network-acl"]
    assert found.verdict is Verdict.WARN
    assert found.message.startswith("acl-0 does not allow all traffic with subnet-1: EFA does not work between")
    assert "network-acl" not in problems(network(acls=acl(*tcp)), HOME)
    far = replace(BESIDE, zone_id="use1-az1")  # EFA never works between zones
    assert "network-acl" not in problems(network(acls=acl(*tcp)), HOME, far)


def test_an_acl_that_stops_the_control_plane_or_the_internet() -> None:
    web = [Rule(90, False, False, TCP, INSIDE, (10250, 10250)), *OPEN]
    assert "TCP from 10.0.0.0/16, port 10250" in problems(network(acls=acl(*web)))["network-acl"].message
    no_answers = [Rule(90, False, True, ALL_PROTOCOLS, INSIDE, None), OPEN[1]]
    assert "port 443 of the internet and the answers" in problems(network(acls=acl(*no_answers)))["network-acl"].message
    assert "network-acl" not in problems(network(acls=acl(*no_answers), tables=[table()]))
    databases = [
        Rule(1, outbound, False, ALL_PROTOCOLS, IPv4Network("10.0.1.128/25"), None) for outbound in (False, True)
    ]
    assert "network-acl" not in problems(network(acls=acl(*databases, *OPEN)), HOME, replace(BESIDE, block=HOME.block))
    partly = problems(network(acls=acl(*databases, *OPEN)), HOME, replace(BESIDE, zone_id="use1-az1"))["network-acl"]
    assert (partly.verdict, "all of 10.0.1.0/24" in partly.message) == (Verdict.WARN, True)
    assert "network-acl" in problems(network(acls=acl(*no_answers), tables=REFUSED))
    attackers = IPv4Network("198.51.100.0/24")
    blocklist = [Rule(1, outbound, False, ALL_PROTOCOLS, attackers, None) for outbound in (False, True)]
    assert "network-acl" not in problems(network(acls=acl(*blocklist, *OPEN)))


def test_dns_settings() -> None:
    off = problems(network(vpcs={VPC: Vpc(VPC, [INSIDE], True, False, AMAZON)}))["dns"]
    assert (off.verdict, off.message) == (
        Verdict.FAIL,
        "enableDnsHostnames off: EKS needs both, and nodes do not join",
    )
    own = problems(network(vpcs={VPC: Vpc(VPC, [INSIDE], True, True, ["10.0.0.53"])}))["dns"]
    assert (own.verdict, "10.0.0.53" in own.message) == (Verdict.WARN, True)
    assert "no resolver" in problems(network(vpcs={VPC: Vpc(VPC, [INSIDE], True, True, [])}))["dns"].message
    assert problems(network(vpcs={VPC: Vpc(VPC, [INSIDE], True, True, None)}))["dns"].verdict is Verdict.UNKNOWN
    docker = problems(network(vpcs={VPC: Vpc(VPC, [IPv4Network("172.17.0.0/20")], True, True, AMAZON)}))["dns"]
    assert "172.17.0.0/20 overlaps" in docker.message
    assert problems(network(vpcs={VPC: REFUSED}))["dns"].verdict is Verdict.UNKNOWN


def test_fragmentation_names_who_breaks_the_prefixes() -> None:
    balancers = [
        Interface(f"eni-{n}", HOME.name, "in-use", "ELB net/web/0", addresses=[HOME.block[n]])  # type: ignore[index]
        for n in range(24, 250, 16)
    ]
    finding = problems(network(), subnet("10.0.0.0/24", interfaces=balancers))["fragmentation"]
    assert finding.message == ("236 of 236 free addresses lie in 15 /28s that are used in part, by 15 load balancer")


def test_a_prefix_without_an_address_beside_it() -> None:
    addresses = [f"10.0.0.{n}" for n in range(4, 16)]
    finding = problems(
        network(), subnet("10.0.0.0/26", addresses=[*addresses, *(f"10.0.0.{n}" for n in range(32, 63))])
    )
    assert "a new interface with a prefix gets InvalidParameterValue" in finding["free-addresses"].message


def test_zones_without_a_control_plane() -> None:
    assert "no subnet of use1-az3" in problems(network(), replace(HOME, zone_id="use1-az3"))["zone"].message


def test_rules_are_tried_in_their_order_and_cover_a_block_together() -> None:
    low, high = (
        Rule(number, False, True, TCP, IPv4Network(block), (0, 65535))
        for number, block in ((1, "10.0.0.0/17"), (2, "10.0.128.0/17"))
    )
    asked: dict[str, Any] = {"outbound": False, "protocol": TCP, "block": INSIDE, "ports": (22, 22)}
    assert allowed_share([low, high], **asked) == 1
    assert allowed_share([low], **asked) == 0.5
    deny = Rule(0, False, False, TCP, IPv4Network("10.0.64.0/18"), None)
    assert allowed_share([deny, low, high], **asked) == 0.75
    assert allowed_share([low, high, replace(deny, number=9)], **asked) == 1
    assert allowed_share([deny, low, high], **{**asked, "ports": (0, 65535)}) == 0.75
    assert allowed_share([replace(low, block=INSIDE, ports=(22, 22))], **{**asked, "ports": (22, 23)}) == 0
    assert allowed_share([], **asked) == 0
    assert allowed_share([low, high], **{**asked, "outbound": True}) == 0
    assert allowed_share([low, high], **{**asked, "protocol": ALL_PROTOCOLS}) == 0


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("com.amazonaws.us-east-1.ecr.api", "ecr.api"),
        ("cn.com.amazonaws.cn-north-1.sts", "sts"),
        ("com.amazonaws.vpce.us-east-1.vpce-svc-0", "us-east-1.vpce-svc-0"),
    ],
)
def test_the_service_of_an_endpoint(name: str, service: str) -> None:
    assert service_of(name) == service
