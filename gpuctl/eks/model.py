"""An EKS cluster as its file describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network

# Source: RFC 1918, RFC 6598.
PRIVATE_BLOCKS = tuple(
    IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)


class Capacity(StrEnum):
    """Market of a node group's instances: a reservation is an on-demand capacity reservation."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVATION = "reservation"
    BLOCK = "block"


@dataclass(frozen=True)
class NodeGroup:
    """A managed node group. `reservation`: id of its reservation or block, "" for none. `placement`: "none", "cluster"
    for a cluster placement group of its own, or the name of one. `layout`: of the interfaces of a node
    (efa-only, bandwidth, efa, plain). `max_pods`: None for the type's default."""

    name: str
    instance_type: str
    min: int
    max: int
    desired: int
    capacity: Capacity = Capacity.ON_DEMAND
    reservation: str = ""
    placement: str = "none"
    layout: str = "efa-only"
    ami: str = "AL2023_x86_64_NVIDIA"
    disk_gib: int = 200
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: Sequence[str] = ()
    max_pods: int | None = None


@dataclass(frozen=True)
class EksCluster:
    """A cluster. `subnets`: ids of existing ones; without any, a VPC with the block `vpc` is made. `allowed`: blocks
    that may reach the public endpoint. `cni`: settings of the VPC CNI as NAME=VALUE. `ttl_hours`, `budget_usd`: None
    for no limit."""

    name: str
    region: str
    version: str
    node_groups: Sequence[NodeGroup]
    subnets: Sequence[str] = ()
    vpc: IPv4Network | None = None
    public_endpoint: bool = True
    private_endpoint: bool = True
    allowed: Sequence[IPv4Network] = ()
    admins: Sequence[str] = ()
    addons: Sequence[str] = ()
    cni: Sequence[str] = ()
    ttl_hours: float | None = None
    budget_usd: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
