"""Nodes that launches stopped beginning with, whatever they did before: no more are made with these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

START_TRIES = 2  # launches in a row that never begin, after which no more are made
Launches = Iterable[tuple[Sequence[str], bool]]  # in their order: the nodes, and whether it began


def shut(launches: Launches) -> frozenset[str]:
    """The nodes whose last START_TRIES launches never began; those with a node that is found so count for no other.

    Who has most of them comes first, then who began least: a partner that was lent is as a rule well.
    """
    every = list(launches)
    if all(began for _, began in every):
        return frozenset()
    of: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for number, (nodes, began) in enumerate(every):
        for node in nodes:
            of[node].append((number, began))
    begun = {node: sum(began for _, began in own) for node, own in of.items()}
    return _blamed({node: _last(own) for node, own in of.items()}, begun)


def _last(every: Sequence[tuple[int, bool]]) -> frozenset[int]:
    """The numbers of those at the end that never began."""
    return frozenset(number for number, _ in takewhile(lambda launch: not launch[1], reversed(every)))


def _blamed(never: Mapping[str, frozenset[int]], begun: Mapping[str, int]) -> frozenset[str]:
    left = {node: numbers for node, numbers in never.items() if numbers}
    found: set[str] = set()
    while left:
        most = max(left, key=lambda node: (len(left[node]), -begun[node]))
        if len(left[most]) < START_TRIES:
            break
        same = {node for node in left if (left[node], begun[node]) == (left[most], begun[most])}
        found |= same
        left = {node: numbers - left[most] for node, numbers in left.items() if node not in same}
    return frozenset(found)
