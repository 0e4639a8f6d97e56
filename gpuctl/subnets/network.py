"""The network around subnets: routes, NAT gateways, endpoints, network ACLs and DNS settings of their VPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from gpuctl.core.errors import GpuctlError

Answer = Mapping[str, Any]
ALL_PROTOCOLS, TCP = "-1", "6"
ANYWHERE = IPv4Network("0.0.0.0/0")


@dataclass(frozen=True)
class Route:
    """A route. `target`: id of a gateway, NAT gateway, transit gateway …, or "local". `works`: False if AWS says that
    it is a blackhole. `block`: None if it leads to a prefix list or to IPv6."""

    block: IPv4Network | None
    target: str
    works: bool


@dataclass(frozen=True)
class RouteTable:
    """A route table. `main`: that of all subnets of the VPC without one of their own."""

    name: str
    vpc: str
    main: bool
    subnets: frozenset[str]
    routes: Sequence[Route]


@dataclass(frozen=True)
class Rule:
    """A rule of a network ACL. `ports`: None for all of the protocol."""

    number: int
    outbound: bool
    allows: bool
    protocol: str
    block: IPv4Network
    ports: tuple[int, int] | None


@dataclass(frozen=True)
class Acl:
    """A network ACL with its IPv4 rules."""

    name: str
    vpc: str
    subnets: frozenset[str]
    rules: Sequence[Rule]


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of a VPC. `service`: the last part of its name, such as ecr.api. `private_dns`: True if the
    service's own name leads to it."""

    name: str
    vpc: str
    service: str
    gateway: bool
    available: bool
    private_dns: bool
    subnets: frozenset[str]
    route_tables: frozenset[str]


@dataclass(frozen=True)
class Nat:
    """A NAT gateway."""

    name: str
    subnet: str
    state: str
    public: bool


@dataclass(frozen=True)
class Vpc:
    """A VPC. `dns_support`, `dns_hostnames`: its attributes. `resolvers`: of its DHCP options; empty if
    these name none, None if they are not listed."""

    name: str
    blocks: Sequence[IPv4Network]
    dns_support: bool
    dns_hostnames: bool
    resolvers: Sequence[str] | None


@dataclass(frozen=True)
class Network:
    """Everything around the subnets of a listing; an error in place of what could not be read."""

    vpcs: Mapping[str, Vpc | GpuctlError]
    tables: Sequence[RouteTable] | GpuctlError
    acls: Sequence[Acl] | GpuctlError
    endpoints: Sequence[Endpoint] | GpuctlError
    nats: Sequence[Nat] | GpuctlError

    def table(self, subnet: str, vpc: str) -> RouteTable | None:
        """The route table of a subnet; None if none is listed."""
        tables = [] if isinstance(self.tables, GpuctlError) else [one for one in self.tables if one.vpc == vpc]
        own = next((one for one in tables if subnet in one.subnets), None)
        return own or next((one for one in tables if one.main), None)

    def acl(self, subnet: str) -> Acl | None:
        """The network ACL of a subnet; None if none is listed."""
        acls = [] if isinstance(self.acls, GpuctlError) else self.acls
        return next((one for one in acls if subnet in one.subnets), None)


def allowed_share(
    rules: Sequence[Rule], *, outbound: bool, protocol: str, block: IPv4Network, ports: tuple[int, int]
) -> float:
    """Share of a block with which an ACL allows traffic of a protocol (or of all) to every port of a range, 0 to 1.

    Rules are tried by number. What no rule allows is denied.
    """
    left, denied = [block], 0
    for rule in sorted(rules, key=lambda rule: rule.number):
        if rule.outbound is not outbound:
            continue
        if protocol not in (ALL_PROTOCOLS, rule.protocol) and rule.protocol != ALL_PROTOCOLS:
            continue
        if rule.ports is not None and (rule.ports[1] < ports[0] or ports[1] < rule.ports[0]):
            continue
        all_ports = rule.ports is None or (rule.ports[0] <= ports[0] and ports[1] <= rule.ports[1])
        if rule.allows and not (all_ports and rule.protocol in (ALL_PROTOCOLS, protocol)):
            continue
        rest = [piece for part in left for piece in _without(part, rule.block)]
        denied += 0 if rule.allows else _size(left) - _size(rest)
        left = rest
    return 1 - (denied + _size(left)) / block.num_addresses


def _size(blocks: Sequence[IPv4Network]) -> int:
    return sum(block.num_addresses for block in blocks)


def _without(part: IPv4Network, other: IPv4Network) -> list[IPv4Network]:
    if part.subnet_of(other):
        return []
    return list(part.address_exclude(other)) if other.subnet_of(part) else [part]


# ---- from the answers of EC2 -----------------------------------------------------------------------------------------

TARGETS = (
    *("GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId", "NetworkInterfaceId", "InstanceId"),
    *("CarrierGatewayId", "LocalGatewayId", "CoreNetworkArn", "EgressOnlyInternetGatewayId"),
)


def read_table(answer: Answer) -> RouteTable:
    associations = answer.get("Associations") or ()
    return RouteTable(
        answer["RouteTableId"],
        answer["VpcId"],
        any(one.get("Main") for one in associations),
        frozenset(one["SubnetId"] for one in associations if one.get("SubnetId")),
        [_route(one) for one in answer.get("Routes") or ()],
    )


def _route(answer: Answer) -> Route:
    block = answer.get("DestinationCidrBlock")
    target = next((str(answer[key]) for key in TARGETS if answer.get(key)), "")
    return Route(IPv4Network(block) if block else None, target, answer.get("State", "active") == "active")


def read_acl(answer: Answer) -> Acl:
    return Acl(
        answer["NetworkAclId"],
        answer["VpcId"],
        frozenset(one["SubnetId"] for one in answer.get("Associations") or ()),
        [_rule(one) for one in answer.get("Entries") or () if one.get("CidrBlock")],
    )


def _rule(answer: Answer) -> Rule:
    ports = answer.get("PortRange")
    return Rule(
        answer["RuleNumber"],
        bool(answer["Egress"]),
        answer["RuleAction"] == "allow",
        str(answer["Protocol"]),
        IPv4Network(answer["CidrBlock"], strict=False),
        (ports["From"], ports["To"]) if ports else None,
    )


def read_endpoint(answer: Answer) -> Endpoint:
    kind = answer.get("VpcEndpointType", "")
    return Endpoint(
        answer["VpcEndpointId"],
        answer["VpcId"],
        service_of(answer["ServiceName"]),
        kind == "Gateway",
        str(answer.get("State", "")).lower() == "available",
        bool(answer.get("PrivateDnsEnabled")),
        frozenset(answer.get("SubnetIds") or ()),
        frozenset(answer.get("RouteTableIds") or ()),
    )


def service_of(name: str) -> str:
    """ "ecr.api" of com.amazonaws.us-east-1.ecr.api, also with aws.api or cn. in front."""
    parts = name.split(".")
    start = parts.index("amazonaws") + 2 if "amazonaws" in parts else 0
    return ".".join(parts[start:])


def read_nat(answer: Answer) -> Nat:
    return Nat(
        answer["NatGatewayId"],
        answer.get("SubnetId", ""),
        answer.get("State", ""),
        answer.get("ConnectivityType", "public") == "public",
    )
