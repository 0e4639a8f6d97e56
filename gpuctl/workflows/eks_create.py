"""Make an EKS cluster: what the plan knows of its types becomes interfaces, zones and limits of pods."""

from __future__ import annotations

from datetime import UTC, datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding
from gpuctl.edges.aws import Aws
from gpuctl.eks import create, network
from gpuctl.eks import state as states
from gpuctl.eks.maker import Design
from gpuctl.eks.model import EksCluster
from gpuctl.eks.node_template import Nic, NodeNetwork
from gpuctl.eks.objects import State, expires
from gpuctl.eks.wait import Waiter
from gpuctl.subnets import demand, node_type
from gpuctl.workflows import eks_plan, eks_plugins
from gpuctl.workflows.eks_plan import EksPlan


def started(aws: Aws, cluster: EksCluster) -> State:
    """Objects that exist already, of an interrupted run; InvalidInput if its removal has begun."""
    state = states.read(aws, cluster.name)
    create.refuse_removal(state)
    return state


def plan(aws: Aws, cluster: EksCluster, state: State, refresh: bool = False) -> EksPlan:
    """The plan, without findings on what an earlier run made. `refresh`: ask for prices, too."""
    return eks_plan.plan(aws, cluster, refresh, state)


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
    zones = network.needed_zones(cluster, made.facts)
    return Design(cluster, networks, zones, network.strategies(made.facts))


def make(aws: Aws, made: EksPlan, waiter: Waiter) -> list[Finding]:
    """Make what is missing, its device plugins included."""
    planned = design(made)
    return [*create.create(aws, planned, waiter), *eks_plugins.check(aws, made, planned, waiter)]
