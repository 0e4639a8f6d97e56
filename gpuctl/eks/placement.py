"""Placement groups of node groups: those that they name, and those in which reservations were made."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, unknown_because, warn
from gpuctl.eks import network
from gpuctl.eks.facts import Facts, PlacementGroup, Type
from gpuctl.eks.model import EksCluster, NodeGroup

SPREAD = 7  # instances of a spread placement group in a zone, by EC2


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
    if one.strategy == "spread":
        return _spread(group, cluster, facts, one)
    return [ok("placement", group.name, f"{one.name} ({one.strategy})")]


def _strategy(group: NodeGroup, strategy: str, facts: Facts) -> list[Finding]:
    """A failure if instances of the type cannot be in a placement group with this strategy."""
    kind = facts.types.get(group.instance_type)
    if not isinstance(kind, Type) or not kind.strategies or strategy in kind.strategies:
        return []
    message = f"EC2 takes {kind.name} in placement groups with {named(sorted(kind.strategies))}, not {strategy}"
    return [fail("placement", group.name, message, "set placement: none, or use another type")]


def _spread(group: NodeGroup, cluster: EksCluster, facts: Facts, one: PlacementGroup) -> list[Finding]:
    """A spread placement group holds few instances in each zone in which the group can have nodes."""
    try:
        zones = network.needed_zones(cluster, facts)
        reached = _zones_of(cluster, facts, zones)
    except GpuctlError as error:
        return [unknown_because("placement", group.name, error)]
    most = SPREAD * len(reached & zones[group.name])
    message = f"{one.name} holds at most {most} instances, {SPREAD} in a zone of the nodes"
    hint = "use a cluster or partition group"
    if group.desired > most:
        return [fail("placement", group.name, f"{message}, and {group.desired} start", hint)]
    if group.max > most:
        return [warn("placement", group.name, f"{message}, and {group.max} may start", hint)]
    return [ok("placement", group.name, f"{one.name} ({one.strategy})")]


def _zones_of(cluster: EksCluster, facts: Facts, needed: Mapping[str, frozenset[str]]) -> set[str]:
    """Zones of the given subnets, or those that a VPC of its own gets; GpuctlError if AWS did not answer."""
    known = facts.subnet_zones if cluster.subnets else facts.zones
    if isinstance(known, GpuctlError):
        raise known
    if isinstance(known, Mapping):
        return {known[name] for name in cluster.subnets if name in known}
    return set(network.choose_zones(known, {name: zones for name, zones in needed.items() if zones}, {}))
