"""Findings of a plan for a cluster of which an earlier run made a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.objects import Kind, State
from gpuctl.eks.quotas import quota_name

# Checks that count what an interrupted run made: with that beside the plan's demand, it would count twice.
COUNT_NODES = frozenset({"quota", "reservation", "addresses"})


def due(findings: Sequence[Finding], state: State, cluster: EksCluster) -> list[Finding]:
    """Findings on what is still to be made. UNKNOWN ones stay: they count nothing.

    Those on nodes of groups that exist go. One that counts such nodes beside others is a WARN, as it counts them twice.
    """
    exist = {one.name for one in state.of(Kind.GROUP)}
    there = _counted([one for one in cluster.node_groups if one.name in exist])
    left = _counted([one for one in cluster.node_groups if one.name not in exist])
    kept = []
    for one in findings:
        key = (one.check, one.subject)
        if one.verdict is Verdict.UNKNOWN:
            kept.append(one)
        elif (there and not left and one.check in COUNT_NODES) or (key in there and key not in left):
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
