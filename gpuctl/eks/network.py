"""A VPC of its own: its zones and blocks; and the subnets in which the nodes of a group start."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.eks_zones import NO_CONTROL_PLANE
from gpuctl.eks.facts import Facts, Type
from gpuctl.eks.model import EksCluster, NodeGroup

ZONES, FEWEST_ZONES = 3, 2
PRIVATE, PUBLIC = "private", "public"
CHOOSE = "choose the zones of a VPC"
INTERNAL_TAG, EXTERNAL_TAG = "kubernetes.io/role/internal-elb", "kubernetes.io/role/elb"


@dataclass(frozen=True)
class Place:
    """A subnet to be made. `part`: private-0 … or public-0 …"""

    part: str
    block: IPv4Network
    zone_id: str

    @property
    def tags(self) -> dict[str, str]:
        """By which controllers of load balancers choose subnets."""
        return {INTERNAL_TAG if self.part.startswith(PRIVATE) else EXTERNAL_TAG: "1"}


@dataclass(frozen=True)
class Home:
    """A subnet for nodes."""

    name: str
    zone_id: str
    free: int


def places(block: IPv4Network, zones: Sequence[str]) -> list[Place]:
    """Subnets of a VPC: of four equal parts, three are for nodes; the fourth has the small public subnets."""
    quarters = list(block.subnets(prefixlen_diff=2))
    small = list(quarters[-1].subnets(prefixlen_diff=2))
    return [
        *(Place(f"{PUBLIC}-{number}", small[number], zone) for number, zone in enumerate(zones)),
        *(Place(f"{PRIVATE}-{number}", quarters[number], zone) for number, zone in enumerate(zones)),
    ]


def needed_zones(cluster: EksCluster, facts: Facts) -> dict[str, frozenset[str]]:
    """Node group -> zones in which it can have nodes; GpuctlError if AWS did not answer."""
    result = {}
    for group in cluster.node_groups:
        kind = facts.types[group.instance_type]
        if isinstance(kind, GpuctlError):
            raise kind
        result[group.name] = _zones_of(group, kind, facts)
    return result


def _zones_of(group: NodeGroup, kind: Type, facts: Facts) -> frozenset[str]:
    if not group.reservation:
        return kind.zones
    if isinstance(facts.reservations, GpuctlError):
        raise facts.reservations
    one = facts.reservations.get(group.reservation)
    return frozenset([one.zone_id]) if one else frozenset()


def strategies(facts: Facts) -> dict[str, str]:
    """Placement group -> its strategy; none if AWS did not answer, which is a finding of the plan."""
    groups = facts.placement_groups
    return {} if isinstance(groups, GpuctlError) else {name: one.strategy for name, one in groups.items()}


def choose_zones(
    available: Collection[str], needed: Mapping[str, frozenset[str]], kept: Mapping[int, str]
) -> list[str]:
    """Three zones (or two, where there are no more) of which each group can use one; by number, those `kept` stay.

    `kept`: number -> zone of subnets that an interrupted run made.
    """
    usable = sorted(set(available) - NO_CONTROL_PLANE)
    chosen = list(kept.values())
    for group, zones in needed.items():
        fitting = [zone for zone in usable if zone in zones]
        if not fitting:
            where = ", ".join(sorted(zones)) or "none"
            wrong = f"{group} can have nodes in {where}, and a VPC of its own reaches none of these"
            raise InvalidInput(CHOOSE, wrong, "name subnets of yours instead: `subnets: [...]`")
        if not set(chosen) & zones:
            chosen.append(fitting[0])
    popular = sorted(usable, key=lambda zone: -sum(zone in zones for zones in needed.values()))
    chosen += [zone for zone in popular if zone not in chosen][: max(0, ZONES - len(chosen))]
    if not FEWEST_ZONES <= len(chosen) <= ZONES:
        wrong = f"the groups need {len(chosen)} zones, and the VPC gets {FEWEST_ZONES} or {ZONES}"
        raise InvalidInput(CHOOSE, wrong, "name subnets of yours instead: `subnets: [...]`")
    rest = [zone for zone in chosen if zone not in kept.values()]
    return [kept.get(number) or rest.pop(0) for number in range(len(chosen))]


def homes(
    group: NodeGroup, has_efa: bool, needed: Collection[str], subnets: Sequence[Home], strategy: str = ""
) -> list[Home]:
    """Subnets of a group. EFA and cluster placement groups do not leave a zone: then those of the emptiest one.

    `strategy`: of a placement group that the group names.
    """
    usable = [one for one in subnets if one.zone_id in needed]
    if not usable or not (has_efa or "cluster" in (group.placement, strategy)):
        return usable
    free: dict[str, int] = {}
    for one in usable:
        free[one.zone_id] = free.get(one.zone_id, 0) + one.free
    best = max(sorted(free), key=lambda zone: free[zone])
    return [one for one in usable if one.zone_id == best]
