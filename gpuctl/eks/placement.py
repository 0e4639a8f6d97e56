"""Placement groups of node groups: those that they name, and those in which reservations were made."""

from __future__ import annotations

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, unknown_because
from gpuctl.eks.facts import Facts, Type
from gpuctl.eks.model import EksCluster, NodeGroup

SPREAD = 7  # instances of a spread placement group in a zone, by EC2
DEFAULT_ZONES = 3  # zones of a VPC of its own


def placement(group: NodeGroup, cluster: EksCluster, facts: Facts) -> list[Finding]:
    """A named placement group must exist; a reservation that was made in a group must be used in that group."""
    reserved = None if isinstance(facts.reservations, GpuctlError) else facts.reservations.get(group.reservation)
    group_of_reservation = reserved.group.rpartition("/")[2] if reserved else ""
    if group_of_reservation and group.placement != group_of_reservation:
        made_in = f"the placement group {group_of_reservation}"
        message = f"{group.reservation} was made in {made_in}, and placement is {group.placement}"
        return [fail("placement", group.name, message, f"set placement: {group_of_reservation}")]
    if group.placement == "none":
        return []
    if group.placement == "cluster":
        return _strategy(group, "cluster", facts)
    return _existing(group, cluster, facts)


def _existing(group: NodeGroup, cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Finding on a placement group of somebody else that a node group names."""
    if isinstance(facts.placement_groups, GpuctlError):
        return [unknown_because("placement", group.name, facts.placement_groups)]
    one = facts.placement_groups.get(group.placement)
    if one is None or one.state != "available":
        state = "does not exist" if one is None else f"is {one.state}"
        return [fail("placement", group.name, f"the placement group {group.placement} {state}", "correct the name")]
    if wrong := _strategy(group, one.strategy, facts):
        return wrong
    most = SPREAD * _zones_of(cluster, facts)
    if one.strategy == "spread" and group.max > most:
        message = f"{one.name} holds at most {most} instances, 7 in a zone, and {group.max} nodes may start"
        return [fail("placement", group.name, message, "use a cluster or partition group")]
    return [ok("placement", group.name, f"{one.name} ({one.strategy})")]


def _strategy(group: NodeGroup, strategy: str, facts: Facts) -> list[Finding]:
    """A failure if instances of the type cannot be in a placement group with this strategy."""
    kind = facts.types.get(group.instance_type)
    if not isinstance(kind, Type) or not kind.strategies or strategy in kind.strategies:
        return []
    message = f"EC2 takes {kind.name} in placement groups with {named(sorted(kind.strategies))}, not {strategy}"
    return [fail("placement", group.name, message, "set placement: none, or use another type")]


def _zones_of(cluster: EksCluster, facts: Facts) -> int:
    known = {} if isinstance(facts.subnet_zones, GpuctlError) else facts.subnet_zones
    return len({known[one] for one in cluster.subnets if one in known}) or DEFAULT_ZONES
