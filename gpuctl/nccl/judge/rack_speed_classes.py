"""Whether pairs of nodes fall in two speeds as they would between racks, where nobody has told us of racks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.isolate.small_fleets import names
from gpuctl.nccl.isolate.speed_clusters import SMALLEST, Pair, cliques, split_point
from gpuctl.nccl.judge.pair_outliers import LEAST_GAP, RULE
from gpuctl.nccl.model import LaunchResult


@dataclass(frozen=True)
class Group:
    """Nodes that reach each other at the higher speed, and all others at the lower one. GB/s, the usual of each."""

    nodes: tuple[str, ...]
    within_gbs: float
    across_gbs: float


def groups(ended: Sequence[LaunchResult]) -> list[Group]:
    """The groups that explain every pair; none where there is one speed only, or no such groups.

    A bad node is slow with everybody and a bad path is one among many, so neither looks like this. Two groups at least
    have several nodes.
    """
    speeds = {_pair(end): gbs for end in ended if len(end.launch.nodes) == 2 and (gbs := speed(end.run))}
    limit = split_point(sorted(map(math.log, speeds.values())), -math.log(1 - LEAST_GAP))
    if limit is None:
        return []
    fast = {pair for pair, gbs in speeds.items() if math.log(gbs) > limit}
    found = cliques(fast, set(speeds) - fast)
    if sum(len(nodes) >= SMALLEST for nodes in found) < 2:
        return []
    within, across = (median(gbs for pair, gbs in speeds.items() if (pair in fast) == is_) for is_ in (True, False))
    return [Group(tuple(nodes), within, across) for nodes in found]


def finding(found: Sequence[Group]) -> Finding:
    """What is to be said of it: it may be as it should, or a fault between the groups."""
    within, across = found[0].within_gbs, found[0].across_gbs
    told = "; ".join(names(group.nodes) for group in found)
    says = f"pairs have two speeds: {within:.0f} GB/s within {len(found)} groups of nodes and {across:.0f} GB/s across"
    advice = "say which rack each node stands in (--rack-var): then pairs are compared with others of their kind"
    numbers = {"within_gbs": round(within, 1), "across_gbs": round(across, 1), "groups": len(found)}
    return Finding(RULE, "", Verdict.UNKNOWN, f"{says} ({told})", numbers, advice)


def _pair(end: LaunchResult) -> Pair:
    a, b = end.launch.nodes
    return a, b
