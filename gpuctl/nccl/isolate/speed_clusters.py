"""Cluster pairs of nodes by speed, and find the nodes that are slow with every other node.

A pair is as fast as the slower of its nodes. Once every pair was run, bad nodes show one pattern: pairs without any of
them are fast, pairs with one of them are slow. Racks show another: several groups of nodes, fast within and slow
between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from statistics import median

CLEAR = 4.0  # two speeds are apart by at least so many times the usual deviation within each
SMALLEST = 2  # smallest group: a single node may just as well be bad itself
APART = 0.12  # from this gap (natural logarithm) on, two speeds need not be VERY_CLEAR
LEAST = 0.03  # a smaller gap does not separate two speeds
VERY_CLEAR = 8.0  # as CLEAR, for a gap below APART: an even scatter splits into halves that are four deviations apart
BY_CHANCE = 0.05  # a pattern of a gap below APART is less likely than this if speeds do not depend on nodes
Pair = tuple[str, str]
Speeds = Mapping[Pair, float]  # GB/s of each pair that was run


@dataclass(frozen=True)
class SpeedClusters:
    """`slow_nodes`: nodes that are slow with every other. `groups`: those of all other nodes, empty for a single group.

    `sides`: set if more than half of the nodes would be slow ones: the nodes that are fast among each other, and those
    that are slow with every other.
    """

    slow_nodes: frozenset[str] = frozenset()
    groups: tuple[tuple[str, ...], ...] = ()
    sides: tuple[tuple[str, ...], ...] = ()


def cluster_speeds(classes: Sequence[Speeds], good_from: float | None = None) -> SpeedClusters:
    """Cluster the pairs of a fleet, by class (within racks, across racks). Empty until every pair was run.

    The slowest nodes are removed first, then the slowest of those left, and so on. At least half of the nodes have to
    remain: otherwise either speed may be the right one, unless the fast pairs reach `good_from` (GB/s).
    """
    nodes = {node for speeds in classes for pair in speeds for node in pair}
    if not whole(nodes, classes):
        return SpeedClusters()
    slow_nodes: frozenset[str] = frozenset()
    while True:
        left = [{pair: gbs for pair, gbs in speeds.items() if slow_nodes.isdisjoint(pair)} for speeds in classes]
        fast, slow = _sides(left)
        components = cliques(fast, slow)
        if components and _gap(fast, slow) < APART and chance_of_pattern(components) > BY_CHANCE:
            return SpeedClusters(slow_nodes)
        groups = tuple(tuple(group) for group in components if len(group) >= SMALLEST)
        if len(groups) != 1:
            return SpeedClusters(slow_nodes, groups)
        more = slow_nodes | {group[0] for group in components if len(group) == 1}
        known = good_from is not None and median(fast.values()) >= good_from
        if more == slow_nodes:
            return SpeedClusters(slow_nodes)
        if 2 * len(more) > len(nodes) and not known:
            return SpeedClusters(slow_nodes, (), (groups[0], tuple(sorted(more - slow_nodes))))
        slow_nodes = more


def whole(nodes: Set[str], classes: Iterable[Speeds]) -> bool:
    """True if every pair of these nodes was run."""
    done = {frozenset(pair) for speeds in classes for pair in speeds}
    return len(nodes) > SMALLEST and all(frozenset(pair) in done for pair in combinations(nodes, 2))


def cliques(fast: Iterable[Pair], slow: Iterable[Pair]) -> list[list[str]]:
    """Groups of nodes within which every pair is fast and between which every pair is slow; empty if there are none."""
    fast, slow = list(fast), list(slow)
    groups = _connected({node for pair in (*fast, *slow) for node in pair}, fast)
    group_of = {node: number for number, nodes in enumerate(groups) for node in nodes}
    return [] if any(group_of[a] == group_of[b] for a, b in slow) else groups


def chance_of_pattern(groups: Sequence[Sequence[str]]) -> float:
    """The chance that groups of these sizes separate fast pairs (within) from slow ones (between), all pairs alike.

    Each order of the speeds is equally likely then: the number of such patterns, divided by the number of ways to
    choose the fast pairs. No assumption about the noise is needed.
    """
    sizes = [len(group) for group in groups]
    nodes, fast = sum(sizes), sum(size * (size - 1) // 2 for size in sizes)
    patterns = math.lgamma(nodes + 1) - sum(math.lgamma(size + 1) for size in sizes)
    patterns -= sum(math.lgamma(count + 1) for count in Counter(sizes).values())
    return min(1.0, math.exp(patterns - math.log(math.comb(nodes * (nodes - 1) // 2, fast))))


def two_speeds(logs: Sequence[float]) -> float | None:
    """The value that separates two speeds among sorted logarithms; None if there is one speed.

    The speeds are either far apart, or nearer and very clearly apart: by the noise that both sides show.
    """
    far = split_point(logs, APART)
    return far if far is not None else split_point(logs, LEAST, VERY_CLEAR)


def _gap(fast: Speeds, slow: Speeds) -> float:
    """The distance (natural logarithm) between the usual fast and the usual slow pair."""
    return math.log(median(fast.values()) / median(slow.values())) if fast and slow else 0.0


def split_point(logs: Sequence[float], least: float, times: float = CLEAR) -> float | None:
    """The value that best splits sorted logarithms in two, by least squares; None if they do not split clearly.

    `least`: the smallest distance between the medians of both sides; `times`: the same in deviations within a side.
    """
    best, total, left = (0.0, 0), sum(logs), 0.0
    for number, value in enumerate(logs[:-1], 1):
        left += value
        distance = left / number - (total - left) / (len(logs) - number)
        best = max(best, (number * (len(logs) - number) * distance * distance, number))
    low, high = logs[: best[1]], logs[best[1] :]
    if not low or not high:
        return None
    usual = max(_deviation(low), _deviation(high))
    clear = median(high) - median(low) > max(least, times * usual)
    return (low[-1] + high[0]) / 2 if clear else None


def _sides(classes: Iterable[Speeds]) -> tuple[Speeds, Speeds]:
    """The fast and the slow pairs of all classes; a class of a single speed adds none."""
    fast: dict[Pair, float] = {}
    slow: dict[Pair, float] = {}
    for speeds in classes:
        limit = two_speeds(sorted(map(math.log, speeds.values())))
        for pair, gbs in speeds.items() if limit is not None else ():
            (fast if math.log(gbs) > (limit or 0.0) else slow)[pair] = gbs
    return fast, slow


def _deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(value - middle) for value in values)


def _connected(nodes: Iterable[str], pairs: Iterable[Pair]) -> list[list[str]]:
    """The connected components of the graph with these nodes and edges."""
    group_of: dict[str, list[str]] = {node: [node] for node in sorted(nodes)}
    for a, b in pairs:
        if group_of[a] is not group_of[b]:
            group_of[a] += group_of[b]
            group_of.update(dict.fromkeys(group_of[b], group_of[a]))
    return list({id(group): group for group in group_of.values()}.values())
