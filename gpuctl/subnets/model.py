"""Values of subnets and of the interfaces in them, as AWS lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network


class Kind(StrEnum):
    """Sort of owner of an interface."""

    NODE = "node"
    CNI = "CNI"
    BRANCH = "pod (branch)"
    INSTANCE = "instance"
    CONTROL_PLANE = "EKS control plane"
    LOAD_BALANCER = "load balancer"
    ENDPOINT = "endpoint"
    NAT = "NAT"
    LAMBDA = "Lambda"
    EFS = "EFS"
    RDS = "RDS"
    ECS = "ECS"
    TRANSIT = "transit gateway"
    SERVICE = "AWS service"
    DETACHED = "detached"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Owner:
    """Owner of an interface. `name`: its id or name, "" if AWS names none."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True)
class Interface:
    """A network interface. `kind`: AWS's InterfaceType, an open set; "" if absent. `instance`: "" if not attached to
    one. `prefixes`: /28 blocks assigned to it; an efa-only interface has neither addresses nor prefixes."""

    name: str
    subnet: str
    status: str
    description: str = ""
    kind: str = ""
    requester: str = ""
    managed: bool = False
    instance: str = ""
    attached: bool = False
    device: int | None = None
    addresses: Sequence[IPv4Address] = ()
    prefixes: Sequence[IPv4Network] = ()
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Reservation:
    """A reserved block. `prefixes`: True for type prefix, False for type explicit."""

    name: str
    block: IPv4Network
    prefixes: bool


@dataclass(frozen=True)
class Subnet:
    """A subnet. `block`: None if it has IPv6 only. `zone_id`: such as use1-az6; `zone` differs between accounts.

    `public_addresses`: instances get a public address of their own accord; None if AWS does not say.
    `aws_free`: AvailableIpAddressCount before and after the interfaces were listed. `shared_by`: the account that
    shares it, "" for a subnet of this account. `reservations`: None if AWS refused to list them; `why` says why.
    """

    name: str
    vpc: str
    block: IPv4Network | None
    zone: str
    zone_id: str
    aws_free: Sequence[int]
    label: str = ""
    shared_by: str = ""
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    interfaces: Sequence[Interface] = ()
    reservations: Sequence[Reservation] | None = ()
    why: str = ""
    public_addresses: bool | None = None


@dataclass(frozen=True)
class Listing:
    """Subnets of one region at one time. `missing`: subnet or VPC ids that were requested and do not exist."""

    region: str
    now: datetime
    subnets: Sequence[Subnet]
    cluster: str = ""
    account: str = ""
