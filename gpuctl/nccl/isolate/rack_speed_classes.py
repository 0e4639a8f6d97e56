"""Pairs of nodes with two speeds, as within and across racks, in a fleet whose racks are not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.isolate.pair_outliers import LEAST_GAP, RULE
from gpuctl.nccl.isolate.small_fleets import names
from gpuctl.nccl.isolate.speed_clusters import SMALLEST, Pair, cliques, split_point
from gpuctl.nccl.model import LaunchResult


@dataclass(frozen=True)
class Group:
    """Nodes that reach each other at the higher median speed (GB/s), and all others at the lower one."""

    nodes: tuple[str, ...]
    within_gbs: float
    across_gbs: float


def groups(results: Sequence[LaunchResult]) -> list[Group]:
    """The groups that explain the speed of every pair; empty if there is only one speed, or no such groups.

    At least two groups have several nodes. A bad node is slow with every other and a bad path is a single pair, so
    neither looks like this.
    """
    speeds = {_pair(end): gbs for end in results if len(end.launch.nodes) == 2 and (gbs := speed(end.run))}
    limit = split_point(sorted(map(math.log, speeds.values())), -math.log(1 - LEAST_GAP))
    if limit is None:
        return []
    fast = {pair for pair, gbs in speeds.items() if math.log(gbs) > limit}
    node_groups = cliques(fast, set(speeds) - fast)
    if sum(len(nodes) >= SMALLEST for nodes in node_groups) < 2:
        return []
    within, across = (median(gbs for pair, gbs in speeds.items() if (pair in fast) == is_) for is_ in (True, False))
    return [Group(tuple(nodes), within, across) for nodes in node_groups]


def finding(groups: Sequence[Group]) -> Finding:
    """UNKNOWN: the groups may be racks, or there may be a fault between them."""
    within, across = groups[0].within_gbs, groups[0].across_gbs
    members = "; ".join(names(group.nodes) for group in groups)
    speeds = f"{within:.0f} GB/s within {len(groups)} groups of nodes and {across:.0f} GB/s across"
    hint = "set the racks of the nodes (--rack-var): then pairs are compared with others of their kind"
    numbers = {"within_gbs": round(within, 1), "across_gbs": round(across, 1), "groups": len(groups)}
    return Finding(RULE, "", Verdict.UNKNOWN, f"pairs have two speeds: {speeds} ({members})", numbers, hint)


def _pair(end: LaunchResult) -> Pair:
    a, b = end.launch.nodes
    return a, b
