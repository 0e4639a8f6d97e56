"""Addresses of an EKS cluster that does not exist yet: all its nodes at their most, placed in its subnets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, unknown, unknown_because, warn
from gpuctl.eks import network
from gpuctl.eks.facts import Facts
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.network import Home
from gpuctl.subnets import demand, forecast, node_type
from gpuctl.subnets.model import Listing, Subnet

Node = node_type.NodeType | GpuctlError
PODS = 10  # on a node with an address of their own, where the file has no max_pods
BALANCER_FREE = 8  # addresses that a load balancer needs in each of its subnets; source: Elastic Load Balancing
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
    if not {one.name for one in listing.subnets}.issuperset(cluster.subnets):
        return []  # the finding on zones says so
    # The control plane's interfaces come first.
    batches = [
        forecast.Batch(1, demand.Demand(CONTROL_PLANE_FREE, [demand.Pool(0, 0)], 0), [name]) for name in cluster.subnets
    ]
    findings: list[Finding] = []
    placed: list[NodeGroup] = []
    for group in cluster.node_groups:
        made, kind = nodes[group.instance_type], facts.types[group.instance_type]
        if isinstance(made, GpuctlError) or isinstance(kind, GpuctlError):
            return [unknown("addresses", group.name, f"the interfaces of {group.instance_type} are not known")]
        places = homes(cluster, group, made, facts, listing)
        if not places:
            continue  # the finding on the offer or the reservation says why
        placed.append(group)
        batches.append(_batch(group, made, places, listing.subnets, cni))
        findings += _pods(group, batches[-1].demand.most_pods)
    if hidden := _unlisted(cluster, listing, batches):
        return [*findings, *hidden]
    return [*findings, *_shortage(cluster, placed, listing.subnets, batches)]


def _pods(group: NodeGroup, most: int) -> list[Finding]:
    if not group.max_pods or group.max_pods <= most:
        return []
    message = f"max_pods is {group.max_pods}, and {most} pods can have an address"
    return [warn("addresses", group.name, message, "lower it, or set ENABLE_PREFIX_DELEGATION=true")]


def _unlisted(cluster: EksCluster, listing: Listing, batches: Sequence[forecast.Batch]) -> list[Finding]:
    used = {name for batch in batches for name in (*batch.homes, *batch.pools)}
    unlisted = [one.name for one in listing.subnets if one.name in used and one.reservations is None]
    message = f"CIDR reservations of {', '.join(unlisted)} could not be listed"
    return [unknown("addresses", cluster.name, message, "have ec2:GetSubnetCidrReservations allowed")] * bool(unlisted)


def homes(cluster: EksCluster, group: NodeGroup, node: Node, facts: Facts, listing: Listing) -> list[Subnet]:
    """Subnets in which nodes of a group are made. `node`: its interfaces, if they are known."""
    kind, reservations = facts.types[group.instance_type], facts.reservations
    reserved = None if isinstance(reservations, GpuctlError) else reservations.get(group.reservation)
    zones = set() if isinstance(kind, GpuctlError) else set(kind.zones)
    if reserved is not None:
        zones &= {reserved.zone_id}
    has_efa = not isinstance(node, GpuctlError) and any(
        one.kind != node_type.PLAIN for one in node_type.interfaces(node, node_type.Layout(group.layout))
    )
    given = [one for one in listing.subnets if one.name in cluster.subnets]
    places = [Home(one.name, one.zone_id, min(one.aws_free)) for one in given]
    strategy = network.strategies(facts).get(group.placement, "")
    chosen = {one.name for one in network.homes(group, has_efa, zones, places, strategy)}
    return [one for one in given if one.name in chosen]


def _shortage(
    cluster: EksCluster, placed: Sequence[NodeGroup], subnets: Sequence[Subnet], batches: Sequence[forecast.Batch]
) -> list[Finding]:
    """Finding on the first shortage. `placed`: the group of each batch after those of the control plane."""
    short = forecast.first_shortage(subnets, batches)
    if short is None:
        return _balancers(cluster, subnets, batches) or [
            ok("addresses", cluster.name, "all node groups fit in the subnets at their largest size")
        ]
    with_luck = forecast.first_shortage(subnets, batches, worst=False)
    number, count, breaks = with_luck or short
    if number < len(cluster.subnets):
        name = cluster.subnets[number]
        message = f"{name} has fewer than {CONTROL_PLANE_FREE} free addresses, which the control plane needs"
        return [fail("addresses", cluster.name, message, "leave it out, or add a subnet: `gpuctl subnets add`")]
    group = placed[number - len(cluster.subnets)]
    what = "the pods of the next get no address" if breaks.launches else "the next does not start"
    message = f"{count} of {group.max} nodes of {group.name} fit, and {what}: {breaks.error} in {breaks.subnet}"
    hint = f"`gpuctl subnets forecast --type {group.instance_type} --nodes {group.max}` names a setting or size"
    if with_luck is None:
        message = f"only if EC2 takes single addresses from broken /28s do all fit; else {message}"
        return [warn("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]
    return [fail("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]


def _balancers(cluster: EksCluster, subnets: Sequence[Subnet], batches: Sequence[forecast.Batch]) -> list[Finding]:
    """A warning if no subnet in a zone of the nodes would have room for a load balancer beside all nodes.

    Its controller passes over subnets without room. Source: kubernetes-sigs/aws-load-balancer-controller,
    pkg/networking/subnet_resolver.go.
    """
    homes_of_nodes = {name for batch in batches[len(cluster.subnets) :] for name in batch.homes}
    zones = {one.zone_id for one in subnets if one.name in homes_of_nodes}
    names = [one.name for one in subnets if one.name in cluster.subnets and one.zone_id in zones]
    need = demand.Demand(BALANCER_FREE, [demand.Pool(0, 0)], 0)
    if not names or any(
        forecast.first_shortage(subnets, [*batches, forecast.Batch(1, need, [name])]) is None for name in names
    ):
        return []
    message = (
        f"beside all nodes, each of {named(names)} has fewer than {BALANCER_FREE} free addresses, "
        "which a load balancer needs in one of them"
    )
    hint = "use no load balancer, or add a subnet: `gpuctl subnets add`"
    return [warn("addresses", cluster.name, message, hint)]


def _batch(
    group: NodeGroup, made: node_type.NodeType, places: Sequence[Subnet], subnets: Sequence[Subnet], cni: demand.Cni
) -> forecast.Batch:
    need = demand.demand(made, node_type.interfaces(made, node_type.Layout(group.layout)), cni, group.max_pods or PODS)
    searched = places if cni.subnet_discovery else ()
    pools = {one.name for place in searched for one in forecast.shared_pools(place, subnets)}
    return forecast.Batch(group.max, need, tuple(one.name for one in places), tuple(sorted(pools)))
