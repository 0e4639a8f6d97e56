"""Network of an EKS cluster that does not exist yet: why nodes in the given subnets would not join it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, fail, ok, unknown, unknown_because
from gpuctl.eks.facts import Facts
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.subnets import diagnose
from gpuctl.subnets.model import Listing, Subnet
from gpuctl.subnets.network import Network
from gpuctl.subnets.node_type import PLAIN, Layout, NodeType, Planned, interfaces
from gpuctl.workflows.eks_addresses import homes

CHECK = "network"
HINT = "use a subnet behind a NAT gateway, or add endpoints: `gpuctl subnets diagnose`"


def network(
    cluster: EksCluster,
    facts: Facts,
    listing: Listing | GpuctlError,
    nodes: Mapping[str, NodeType | GpuctlError],
    around: Network | GpuctlError,
) -> list[Finding]:
    """Routes, endpoints, network ACLs and DNS of the cluster's subnets, and public addresses of each group's nodes."""
    if isinstance(listing, GpuctlError):
        return [unknown_because(CHECK, cluster.name, listing)]
    if isinstance(around, GpuctlError):
        return [unknown_because(CHECK, cluster.name, around)]
    planned = {group.name: _interfaces(group, nodes[group.instance_type]) for group in cluster.node_groups}
    efa = any(each is None or any(one.kind != PLAIN for one in each) for each in planned.values())
    found: list[Finding] = []
    chosen = [one for one in listing.subnets if one.name in cluster.subnets]
    if not chosen:
        return [unknown(CHECK, cluster.name, "the subnets are not listed", "see the finding on zones")]
    for subnet in chosen:
        found += diagnose.routes(subnet, listing.subnets, around, several_interfaces=False)
        found += diagnose.endpoints(subnet, around)
        found += diagnose.acl(subnet, chosen, around, efa=efa)
    for vpc in sorted({subnet.vpc for subnet in chosen}):
        found += diagnose.dns(vpc, around.vpcs[vpc])
    for group in cluster.node_groups:
        places = homes(cluster, group, nodes[group.instance_type], facts, listing)
        found += _public_addresses(group, planned[group.name], [one for one in places if _needs_public(one, around)])
    wrong = [replace(finding, check=CHECK) for finding in found if finding.verdict is not Verdict.OK]
    return wrong or [ok(CHECK, cluster.name, "nodes of all groups reach the control plane and AWS's services")]


def _interfaces(group: NodeGroup, node: NodeType | GpuctlError) -> Sequence[Planned] | None:
    return None if isinstance(node, GpuctlError) else interfaces(node, Layout(group.layout))


def _needs_public(subnet: Subnet, around: Network) -> bool:
    """True if an internet gateway is the only way to AWS's services: it serves public addresses only."""
    table = around.table(subnet.name, subnet.vpc)
    if table is None or isinstance(around.endpoints, GpuctlError):
        return False  # findings on routes and endpoints say so
    leads_out = diagnose.default_route(table).startswith("igw-")
    return leads_out and bool(diagnose.missing_endpoints(subnet, table, around.endpoints))


def _public_addresses(group: NodeGroup, planned: Sequence[Planned] | None, public: Sequence[Subnet]) -> list[Finding]:
    """Findings on a group's nodes in subnets where they need public addresses."""
    names = named(one.name for one in public)
    way = f"only an internet gateway leads out of {names}, and serves public addresses only"
    if public and planned is None:
        message = f"{way}; the interfaces of {group.instance_type} are not known"
        return [unknown(CHECK, group.name, message, HINT)]
    if public and planned is not None and len(planned) > 1:
        message = f"{way}; an instance with {len(planned)} interfaces gets none: nodes do not join"
        return [fail(CHECK, group.name, message, HINT)]
    found = []
    for subnet in public:
        if subnet.public_addresses is None:
            message = f"AWS does not say whether {subnet.name}, a public subnet, gives instances public addresses"
            found.append(unknown(CHECK, group.name, message, HINT))
        elif not subnet.public_addresses:
            message = f"{subnet.name} leads out through an internet gateway, and gives instances no public address: "
            hint = f"aws ec2 modify-subnet-attribute --subnet-id {subnet.name} --map-public-ip-on-launch, or {HINT}"
            found.append(fail(CHECK, group.name, f"{message}nodes do not join", hint))
    return found
