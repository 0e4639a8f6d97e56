"""What AWS was asked about a cluster that does not exist yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.eks.objects import Object, State


@dataclass(frozen=True)
class Type:
    """An instance type. `architecture`: x86_64 or arm64. `zones`: ids of the zones that offer it. `usages`: on-demand,
    spot, capacity-block; `strategies`: of placement groups. Both are empty if AWS does not name any. `gpus`: of NVIDIA;
    None if AWS does not name their number."""

    name: str
    vcpus: int
    architecture: str
    zones: frozenset[str]
    usages: frozenset[str] = frozenset()
    strategies: frozenset[str] = frozenset()
    gpus: int | None = None


@dataclass(frozen=True)
class Version:
    """A version of Kubernetes at EKS. `standard_end`, `extended_end`: None if AWS names no date."""

    name: str
    standard_end: date | None
    extended_end: date | None


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or block. `start`, `end`: None if AWS names no time. `group`: ARN of the placement group
    that it was made in, "" for none."""

    name: str
    state: str
    instance_type: str
    zone_id: str
    available: int
    total: int
    is_block: bool
    group: str = ""
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class PlacementGroup:
    name: str
    strategy: str
    state: str


@dataclass(frozen=True)
class Facts:
    """Everything that AWS was asked; an error in place of what it refused.

    `quotas`, `vpc_quotas`: name -> value. `running`: vCPUs by type of running on-demand instances and of unused
    reservations, `running_spot`: of spot instances. `subnet_zones`: subnet -> zone id, `subnet_vpcs`: their VPCs.
    `tenancy`: that of the subnets' VPCs, "default" for shared hardware. `vpcs`, `elastic_ips`: how many there are.
    `simulated`: action -> IAM's decision on it, by a simulation. `zones`: of the region, for a VPC that is made.
    `clusters`, `internet_gateways`, `roles`: how many there are; `most_roles`: of the account, None if AWS names no
    limit. `addons`, `admins`: name or ARN -> True if it exists. `state`: objects with the tags or names of this
    cluster; None if it was not read.
    `templates`: launch templates with names of this cluster. `has_efa`: True if a group has EFA. `interfaces`: how many
    network interfaces the region has; `node_interfaces`: group -> those of a node, for types that are known.
    """

    now: datetime
    cluster: str | GpuctlError  # status of a cluster with this name, "" for none
    versions: Sequence[Version] | GpuctlError
    types: Mapping[str, Type | GpuctlError]
    quotas: Mapping[str, float] | GpuctlError
    running: Mapping[str, int] | GpuctlError
    reservations: Mapping[str, Reservation] | GpuctlError = field(default_factory=dict)
    placement_groups: Mapping[str, PlacementGroup] | GpuctlError = field(default_factory=dict)
    subnet_zones: Mapping[str, str] | GpuctlError = field(default_factory=dict)
    subnet_vpcs: Sequence[str] = ()
    vpc_quotas: Mapping[str, float] | GpuctlError = field(default_factory=dict)
    running_spot: Mapping[str, int] | GpuctlError = field(default_factory=dict)
    tenancy: str | GpuctlError = "default"
    vpcs: int | GpuctlError = 0
    elastic_ips: int | GpuctlError = 0
    simulated: Mapping[str, str] | GpuctlError = field(default_factory=dict)
    zones: Sequence[str] | GpuctlError = ()
    clusters: int | GpuctlError = 0
    internet_gateways: int | GpuctlError = 0
    roles: int | GpuctlError = 0
    most_roles: int | GpuctlError | None = 1000
    eks_quotas: Mapping[str, float] | GpuctlError = field(default_factory=dict)
    addons: Mapping[str, bool | GpuctlError] = field(default_factory=dict)
    admins: Mapping[str, bool | GpuctlError] = field(default_factory=dict)
    state: State | GpuctlError | None = None
    templates: Sequence[Object] | GpuctlError = ()
    has_efa: bool = False
    interfaces: int | GpuctlError = 0
    node_interfaces: Mapping[str, int] = field(default_factory=dict)
