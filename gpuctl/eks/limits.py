"""Limits of an account on what a cluster is made of: clusters, groups, roles, and parts of a VPC of its own."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, unknown_because
from gpuctl.eks.facts import Facts
from gpuctl.eks.model import EksCluster
from gpuctl.eks.objects import Kind, State

CHECK = "limit"
VPC_QUOTA, ADDRESS_QUOTA, GATEWAY_QUOTA = "VPCs per Region", "EC2-VPC Elastic IPs", "Internet gateways per Region"
INTERFACE_QUOTA = "Network interfaces per Region"
CLUSTER_QUOTA = "Clusters"
GROUP_QUOTA, NODE_QUOTA = "Managed node groups per cluster", "Nodes per managed node group"
BLOCK_QUOTA = "Public endpoint access CIDR ranges per cluster"
ROLES, PLACEMENT = "IAM roles", "placement groups"
# For what Service Quotas does not list. Sources: Amazon EKS and VPC user guides, quotas.
DEFAULTS: Mapping[str, float] = {
    CLUSTER_QUOTA: 100,
    GROUP_QUOTA: 30,
    NODE_QUOTA: 450,
    BLOCK_QUOTA: 40,
    GATEWAY_QUOTA: 5,
    INTERFACE_QUOTA: 5000,
}
CONTROL_PLANE_INTERFACES = 4  # EKS makes two to four; source: EKS user guide, network requirements
MOST_PLACEMENT_GROUPS = 500  # of a region and account; source: EC2 user guide, placement groups
MORE = "remove one, or ask for more in Service Quotas"


def limits(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Limits on what is still to be made; what an interrupted run has made needs no more."""
    found = [
        *_room(CLUSTER_QUOTA, facts.clusters, _due(facts, Kind.CLUSTER, 1), facts.eks_quotas),
        *_room(ROLES, facts.roles, _due(facts, Kind.ROLE, 2), _most_roles(facts)),
        *_sizes(cluster, facts),
        *_room(INTERFACE_QUOTA, facts.interfaces, _interfaces(cluster, facts), facts.vpc_quotas),
    ]
    own_group = sum(one.placement == "cluster" for one in cluster.node_groups)
    if own_group:
        groups = facts.placement_groups
        used = groups if isinstance(groups, GpuctlError) else len(groups)
        most = {PLACEMENT: float(MOST_PLACEMENT_GROUPS)}
        found += _room(PLACEMENT, used, _due(facts, Kind.PLACEMENT, own_group), most)
    if cluster.vpc is not None:
        found += _room(VPC_QUOTA, facts.vpcs, _due(facts, Kind.VPC, 1), facts.vpc_quotas)
        found += _room(GATEWAY_QUOTA, facts.internet_gateways, _due(facts, Kind.GATEWAY, 1), facts.vpc_quotas)
        found += _room(ADDRESS_QUOTA, facts.elastic_ips, _due(facts, Kind.ADDRESS, 1), facts.quotas)
    return found


def _most_roles(facts: Facts) -> Mapping[str, float] | GpuctlError:
    most = facts.most_roles
    if most is None:
        return GpuctlError("read the limit of IAM roles", "AWS names none", "look at Service Quotas, IAM")
    return most if isinstance(most, GpuctlError) else {ROLES: most}


def _interfaces(cluster: EksCluster, facts: Facts) -> int:
    """Network interfaces that are needed at least: those of the VPC CNI for pods come beside them."""
    made = {one.part for one in facts.state.of(Kind.GROUP)} if isinstance(facts.state, State) else set()
    nodes = sum(
        group.max * facts.node_interfaces.get(group.name, 1) for group in cluster.node_groups if group.name not in made
    )
    control_plane = CONTROL_PLANE_INTERFACES * _due(facts, Kind.CLUSTER, 1)
    return nodes + control_plane + (_due(facts, Kind.NAT, 1) if cluster.vpc is not None else 0)


def _due(facts: Facts, kind: Kind, needed: int) -> int:
    """Objects of a kind that are still to be made."""
    exist = sum(one.ours for one in facts.state.of(kind)) if isinstance(facts.state, State) else 0
    return max(0, needed - exist)


def _room(which: str, used: int | GpuctlError, due: int, quotas: Mapping[str, float] | GpuctlError) -> list[Finding]:
    if not due:
        return []
    if isinstance(quotas, GpuctlError):
        return [unknown_because(CHECK, which, quotas)]
    if isinstance(used, GpuctlError):
        return [unknown_because(CHECK, which, used)]
    most = quotas.get(which, DEFAULTS.get(which))
    if most is None:
        return [unknown(CHECK, which, "Service Quotas does not list it", "look at Service Quotas", used=used)]
    if used + due > most:
        needed = "one more is" if due == 1 else f"{due} more are"
        return [fail(CHECK, which, f"{used} of {most:g} are used, and {needed} needed", MORE, used=used, limit=most)]
    return [Finding(CHECK, which, Verdict.OK, f"{used} of {most:g} are used", {"used": used, "limit": most})]


def _sizes(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Sizes of the cluster itself, against EKS's quotas."""
    if isinstance(facts.eks_quotas, GpuctlError):
        return [unknown_because(CHECK, GROUP_QUOTA, facts.eks_quotas)]
    most = {**DEFAULTS, **facts.eks_quotas}
    found = []
    for which, count in ((GROUP_QUOTA, len(cluster.node_groups)), (BLOCK_QUOTA, len(cluster.allowed))):
        if count > most[which]:
            found.append(fail(CHECK, which, f"the file has {count}, and the quota is {most[which]:g}", MORE))
    for group in cluster.node_groups:
        if group.max > most[NODE_QUOTA]:
            message = f"max is {group.max}, and a managed node group has {most[NODE_QUOTA]:g} nodes at most"
            found.append(fail(CHECK, group.name, message, "make several groups, or ask for more in Service Quotas"))
    return or_ok(CHECK, GROUP_QUOTA, found, "groups and their sizes are within EKS's quotas")
