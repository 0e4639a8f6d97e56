"""Addresses of an EKS cluster that does not exist yet: all its nodes at their most, placed in its subnets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, fail, ok, unknown, unknown_because, warn
from gpuctl.eks.facts import Facts
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.subnets import demand, forecast, node_type
from gpuctl.subnets.model import Listing, Subnet

PODS = 10  # on a node with an address of their own, where the file has no max_pods
CONTROL_PLANE_FREE = 6  # addresses that EKS needs in each subnet of a cluster


def addresses(
    cluster: EksCluster,
    facts: Facts,
    listing: Listing | GpuctlError,
    nodes: Mapping[str, node_type.NodeType | GpuctlError],
    cni: demand.Cni,
) -> list[Finding]:
    """All groups at their largest size, placed one after the other in the given subnets."""
    if isinstance(listing, GpuctlError):
        return [unknown_because("addresses", cluster.name, listing)]
    if len(set(facts.subnet_vpcs)) > 1:
        return [unknown("addresses", cluster.name, "the subnets are of several VPCs", "name those of one VPC")]
    # The control plane's interfaces come first.
    batches = [
        forecast.Batch(1, demand.Demand(CONTROL_PLANE_FREE, [demand.Pool(0, 0)], 0), [name]) for name in cluster.subnets
    ]
    findings = []
    for group in cluster.node_groups:
        made, kind = nodes[group.instance_type], facts.types[group.instance_type]
        if isinstance(made, GpuctlError) or isinstance(kind, GpuctlError):
            return [unknown("addresses", group.name, f"the interfaces of {group.instance_type} are not known")]
        homes = [one for one in listing.subnets if one.name in cluster.subnets and one.zone_id in kind.zones]
        batches.append(_batch(group, made, _near(group, homes, facts, _has_efa(group, made)), listing.subnets, cni))
        if group.max_pods and group.max_pods > batches[-1].demand.most_pods:
            message = f"max_pods is {group.max_pods}, and {batches[-1].demand.most_pods} pods can have an address"
            findings.append(warn("addresses", group.name, message, "lower it, or set ENABLE_PREFIX_DELEGATION=true"))
    used = {name for batch in batches for name in (*batch.homes, *batch.pools)}
    if unlisted := [one.name for one in listing.subnets if one.name in used and one.reservations is None]:
        message = f"CIDR reservations of {', '.join(unlisted)} could not be listed"
        return [*findings, unknown("addresses", cluster.name, message, "have ec2:GetSubnetCidrReservations allowed")]
    return [*findings, *_shortage(cluster, listing.subnets, batches)]


def _has_efa(group: NodeGroup, made: node_type.NodeType) -> bool:
    return any(one.kind != node_type.PLAIN for one in node_type.interfaces(made, node_type.Layout(group.layout)))


def _near(group: NodeGroup, homes: Sequence[Subnet], facts: Facts, has_efa: bool) -> list[Subnet]:
    """Subnets in which a group has nodes: those of its reservation's zone; of one zone with EFA or a cluster group."""
    reserved = None if isinstance(facts.reservations, GpuctlError) else facts.reservations.get(group.reservation)
    if reserved is not None:
        return [one for one in homes if one.zone_id == reserved.zone_id]
    if group.placement != "cluster" and not has_efa:
        return list(homes)
    free: dict[str, int] = {}
    for one in homes:
        free[one.zone_id] = free.get(one.zone_id, 0) + min(one.aws_free)
    return [one for one in homes if one.zone_id == max(free, key=lambda zone: free[zone])]


def _shortage(cluster: EksCluster, subnets: Sequence[Subnet], batches: Sequence[forecast.Batch]) -> list[Finding]:
    short = forecast.first_shortage(subnets, batches)
    if short is None:
        return [ok("addresses", cluster.name, "all node groups fit in the subnets at their largest size")]
    with_luck = forecast.first_shortage(subnets, batches, worst=False)
    number, count, breaks = with_luck or short
    if number < len(cluster.subnets):
        name = cluster.subnets[number]
        message = f"{name} has fewer than {CONTROL_PLANE_FREE} free addresses, which the control plane needs"
        return [fail("addresses", cluster.name, message, "leave it out, or add a subnet: `gpuctl subnets add`")]
    group = cluster.node_groups[number - len(cluster.subnets)]
    what = "the pods of the next get no address" if breaks.launches else "the next does not start"
    message = f"{count} of {group.max} nodes of {group.name} fit, and {what}: {breaks.error} in {breaks.subnet}"
    hint = f"`gpuctl subnets forecast --type {group.instance_type} --nodes {group.max}` names a setting or size"
    if with_luck is None:
        message = f"only if EC2 takes single addresses from broken /28s do all fit; else {message}"
        return [warn("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]
    return [fail("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]


def _batch(
    group: NodeGroup, made: node_type.NodeType, homes: Sequence[Subnet], subnets: Sequence[Subnet], cni: demand.Cni
) -> forecast.Batch:
    planned = node_type.interfaces(made, node_type.Layout(group.layout))
    need = demand.demand(made, planned, cni, group.max_pods or PODS)
    pools = {one.name for home in homes for one in forecast.shared_pools(home, subnets)} if cni.subnet_discovery else ()
    return forecast.Batch(group.max, need, tuple(one.name for one in homes), tuple(sorted(pools)))
