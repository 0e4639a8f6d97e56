"""Cluster pairs of nodes by speed, and find the nodes that are slow with every other node.

A pair is as fast as the slower of its nodes. Once every pair was run, bad nodes show one pattern: pairs without any of
them are fast, pairs with one of them are slow. Racks show another: several groups of nodes, fast within and slow
between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from statistics import median

CLEAR = 4.0  # two speeds are apart by at least so many times the usual deviation within each
SMALLEST = 2  # smallest group: a single node may just as well be bad itself
APART = 0.12  # a smaller gap (natural logarithm) does not separate two speeds
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


def split_point(logs: Sequence[float], least: float) -> float | None:
    """The value that best splits sorted logarithms in two, by least squares; None if they do not split clearly.

    `least`: the smallest distance between the medians of both sides.
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
    clear = median(high) - median(low) > max(least, CLEAR * usual)
    return (low[-1] + high[0]) / 2 if clear else None


def _sides(classes: Iterable[Speeds]) -> tuple[Speeds, Speeds]:
    """The fast and the slow pairs of all classes; a class of a single speed adds none."""
    fast: dict[Pair, float] = {}
    slow: dict[Pair, float] = {}
    for speeds in classes:
        limit = split_point(sorted(map(math.log, speeds.values())), APART)
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
