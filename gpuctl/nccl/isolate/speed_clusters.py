"""How pairs of nodes part in two speeds, and which nodes that sets apart from all others.

A pair is as fast as the slower of its nodes. So where every pair was run, bad nodes show by one pattern alone: pairs
without any of them are fast, pairs with one of them are slow. Racks show by another: several groups of nodes, fast
within and slow between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from statistics import median

CLEAR = 4.0  # so many times the usual deviation within a speed lie between two speeds
SMALLEST = 2  # nodes that make a group: one alone may just as well be bad itself
APART = 0.12  # a gap (natural logarithm) below this sets nobody apart
Pair = tuple[str, str]
Speeds = Mapping[Pair, float]  # GB/s of each pair that was run


@dataclass(frozen=True)
class SpeedClusters:
    """`apart`: nodes that are slow with everybody. `groups`: those that all others fall in; empty where in one.

    `sides`: the few that are fast among each other, and the more that are slow with everybody; empty where not so.
    """

    slow_nodes: frozenset[str] = frozenset()
    groups: tuple[tuple[str, ...], ...] = ()
    sides: tuple[tuple[str, ...], ...] = ()


def cluster_speeds(classes: Sequence[Speeds], good_from: float | None = None) -> SpeedClusters:
    """What the pairs of a fleet come to, class by class (within racks, across them), once every pair was run.

    The slowest nodes are set apart first, then of those left again. At least as many nodes have to be left as are set
    apart: else it cannot be said which speed is the right one, unless the fast pairs reach `good_from` (GB/s).
    """
    nodes = {node for speeds in classes for pair in speeds for node in pair}
    if not whole(nodes, classes):
        return SpeedClusters()
    slow_nodes: frozenset[str] = frozenset()
    while True:
        left = [{pair: gbs for pair, gbs in speeds.items() if slow_nodes.isdisjoint(pair)} for speeds in classes]
        fast, slow = _sides(left)
        found = cliques(fast, slow)
        groups = tuple(tuple(group) for group in found if len(group) >= SMALLEST)
        if len(groups) != 1:
            return SpeedClusters(slow_nodes, groups)
        more = slow_nodes | {group[0] for group in found if len(group) == 1}
        known = good_from is not None and median(fast.values()) >= good_from
        if more == slow_nodes:
            return SpeedClusters(slow_nodes)
        if 2 * len(more) > len(nodes) and not known:
            return SpeedClusters(slow_nodes, (), (groups[0], tuple(sorted(more - slow_nodes))))
        slow_nodes = more


def whole(nodes: Set[str], classes: Iterable[Speeds]) -> bool:
    """Whether every pair of these nodes was run."""
    done = {frozenset(pair) for speeds in classes for pair in speeds}
    return len(nodes) > SMALLEST and all(frozenset(pair) in done for pair in combinations(nodes, 2))


def cliques(fast: Iterable[Pair], slow: Iterable[Pair]) -> list[list[str]]:
    """The groups of nodes within which every pair is fast and between which every pair is slow; none where not so."""
    fast, slow = list(fast), list(slow)
    found = _joined({node for pair in (*fast, *slow) for node in pair}, fast)
    of = {node: number for number, nodes in enumerate(found) for node in nodes}
    return [] if any(of[a] == of[b] for a, b in slow) else found


def between(logs: Sequence[float], least: float) -> float | None:
    """Where the sorted values part best in two, by least squares; None where they do not part clearly."""
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
    """The fast and the slow pairs; a class of one speed says nothing."""
    fast: dict[Pair, float] = {}
    slow: dict[Pair, float] = {}
    for speeds in classes:
        limit = between(sorted(map(math.log, speeds.values())), APART)
        for pair, gbs in speeds.items() if limit is not None else ():
            (fast if math.log(gbs) > (limit or 0.0) else slow)[pair] = gbs
    return fast, slow


def _deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(value - middle) for value in values)


def _joined(nodes: Iterable[str], pairs: Iterable[Pair]) -> list[list[str]]:
    """The nodes in groups: those that these pairs connect are in the same one."""
    of: dict[str, list[str]] = {node: [node] for node in sorted(nodes)}
    for a, b in pairs:
        if of[a] is not of[b]:
            of[a] += of[b]
            of.update(dict.fromkeys(of[b], of[a]))
    return list({id(group): group for group in of.values()}.values())
