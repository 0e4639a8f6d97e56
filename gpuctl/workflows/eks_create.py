"""Make an EKS cluster: what the plan knows of its types becomes interfaces, zones and limits of pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.aws import Aws
from gpuctl.eks import create, network
from gpuctl.eks import state as states
from gpuctl.eks.maker import Design
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.node_template import Nic, NodeNetwork
from gpuctl.eks.objects import Kind, State, expires
from gpuctl.eks.quotas import quota_name
from gpuctl.eks.wait import Waiter
from gpuctl.subnets import demand, node_type
from gpuctl.workflows import eks_plan, eks_plugins
from gpuctl.workflows.eks_plan import EksPlan

# Checks that count what an interrupted run made: with that beside the plan's demand, it would count twice.
COUNT_NODES = frozenset({"quota", "reservation", "addresses"})


def started(aws: Aws, cluster: EksCluster) -> State:
    """Objects that exist already, of an interrupted run; InvalidInput if its removal has begun."""
    state = states.read(aws, cluster.name)
    create.refuse_removal(state)
    return state


def plan(aws: Aws, cluster: EksCluster, state: State, refresh: bool = False) -> EksPlan:
    """The plan, without findings on what an earlier run made. `refresh`: ask for prices, too."""
    made = eks_plan.plan(aws, cluster, refresh, state)
    return replace(made, findings=due(made.findings, state, cluster))


def due(findings: Sequence[Finding], state: State, cluster: EksCluster) -> list[Finding]:
    """Findings on what is still to be made. UNKNOWN ones stay: they count nothing.

    Those on nodes of groups that exist go. One that counts such nodes beside others is a WARN, as it counts them twice.
    """
    skipped = set[str]()
    if any(one.ours for one in state.of(Kind.CLUSTER)):
        skipped.add("name")
    exist = {one.name for one in state.of(Kind.GROUP)}
    there = _counted([one for one in cluster.node_groups if one.name in exist])
    left = _counted([one for one in cluster.node_groups if one.name not in exist])
    kept = []
    for one in findings:
        key = (one.check, one.subject)
        if one.verdict is Verdict.UNKNOWN:
            kept.append(one)
        elif (
            one.check in skipped
            or (there and not left and one.check in COUNT_NODES)
            or (key in there and key not in left)
        ):
            continue
        elif one.verdict is Verdict.FAIL and there and (key in there or one.check == "addresses"):
            message = f"{one.message} (nodes that exist are counted twice)"
            kept.append(replace(one, verdict=Verdict.WARN, message=message))
        else:
            kept.append(one)
    return kept


def _counted(groups: Sequence[NodeGroup]) -> set[tuple[str, str]]:
    """Check and subject of findings that count nodes of these groups."""
    found = {(check, one.name) for one in groups for check in ("quota", "reservation", "addresses")}
    return found | {("quota", quota_name(one.instance_type, one.capacity)) for one in groups}


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
