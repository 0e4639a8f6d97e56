"""Make an EKS cluster: what the plan knows of its types becomes interfaces, zones and limits of pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.aws import Aws
from gpuctl.eks import create, network
from gpuctl.eks import state as states
from gpuctl.eks.maker import Design
from gpuctl.eks.model import EksCluster
from gpuctl.eks.node_template import Nic, NodeNetwork
from gpuctl.eks.objects import Kind, State, expires
from gpuctl.eks.wait import Waiter
from gpuctl.subnets import demand, node_type
from gpuctl.workflows import eks_plan
from gpuctl.workflows.eks_plan import EksPlan

GPU_FAMILIES = ("p", "g")
# Checks that count what an interrupted run made: with that beside the plan's demand, it would count twice.
COUNT_NODES = frozenset({"quota", "reservation", "addresses"})
COUNT_NETWORK = frozenset({"limit"})


def started(aws: Aws, cluster: EksCluster) -> State:
    """Objects that exist already, of an interrupted run; InvalidInput if its removal has begun."""
    state = states.read(aws, cluster.name)
    create.refuse_removal(state)
    return state


def plan(aws: Aws, cluster: EksCluster, state: State) -> EksPlan:
    """The plan, without findings on what an earlier run made."""
    made = eks_plan.plan(aws, cluster)
    return EksPlan(cluster, due(made.findings, state), made.costs, made.prices, made.facts, made.nodes)


def due(findings: Sequence[Finding], state: State) -> list[Finding]:
    """Findings on what is still to be made. UNKNOWN ones stay: they count nothing."""
    skipped = set[str]()
    if any(one.ours for one in state.of(Kind.CLUSTER)):
        skipped.add("name")
    if state.of(Kind.GROUP):
        skipped |= COUNT_NODES
    if state.of(Kind.VPC):
        skipped |= COUNT_NETWORK
    return [one for one in findings if one.check not in skipped or one.verdict is Verdict.UNKNOWN]


def is_late(state: State) -> bool:
    """True if the time to live of what exists is over."""
    first = state.first_role
    end = expires(first) if first else None
    return end is not None and end <= datetime.now(UTC)


def design(made: EksPlan) -> Design:
    """Interfaces and zones of each group; GpuctlError if AWS did not answer for a type."""
    cluster = made.cluster
    cni = demand.settings([one for one in cluster.cni if not one.startswith("ENABLE_PREFIX_DELEGATION")])
    networks = {}
    for group in cluster.node_groups:
        kind = made.nodes[group.instance_type]
        if isinstance(kind, GpuctlError):
            raise kind
        planned = node_type.interfaces(kind, node_type.Layout(group.layout))
        pods = demand.demand(kind, planned, cni, 0).most_pods
        networks[group.name] = NodeNetwork([Nic(one.card, one.device, one.kind) for one in planned], pods)
    has_gpus = any(group.instance_type.startswith(GPU_FAMILIES) for group in cluster.node_groups)
    return Design(cluster, networks, network.needed_zones(cluster, made.facts), has_gpus)


def make(aws: Aws, made: EksPlan, waiter: Waiter) -> list[Finding]:
    """Make what is missing."""
    return create.create(aws, design(made), waiter)
