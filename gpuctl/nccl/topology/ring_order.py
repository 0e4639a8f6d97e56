"""Order nodes so that a ring crosses between racks as rarely as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Place = tuple[str, ...]  # outermost first: (spine, leaf), or (rack,)


@dataclass(frozen=True)
class Order:
    """Order of the nodes before and after. Crossings: neighbours in the ring that are in different racks.

    `unplaced`: nodes whose rack is unknown; they come last, and each counts as a rack.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    crossings_before: int
    crossings_after: int
    racks: Mapping[Place, tuple[str, ...]]
    unplaced: tuple[str, ...] = ()


def order(nodes: Sequence[str], places: Mapping[str, Place]) -> Order:
    """Group nodes by rack and racks by spine, each in the order of its first appearance.

    With R > 1 racks a ring crosses at least R times; this order crosses exactly R times.
    """
    first: dict[Place, int] = {}
    for position, node in enumerate(nodes):
        place = places.get(node, ())
        for depth in range(1, len(place) + 1):
            first.setdefault(place[:depth], position)
    placed = [node for node in nodes if places.get(node)]
    unplaced = tuple(node for node in nodes if not places.get(node))
    after = (*sorted(placed, key=lambda node: _path(places[node], first)), *unplaced)
    racks: dict[Place, tuple[str, ...]] = {}
    for node in after[: len(placed)]:
        racks[places[node]] = (*racks.get(places[node], ()), node)
    return Order(tuple(nodes), after, crossings(nodes, places), crossings(after, places), racks, unplaced)


def _path(place: Place, first: Mapping[Place, int]) -> list[int]:
    """Sort key: position at which each group of a place first appeared, outermost first; stable within a rack."""
    return [first[place[:depth]] for depth in range(1, len(place) + 1)]


def crossings(nodes: Sequence[str], places: Mapping[str, Place]) -> int:
    """Count neighbours of the closed ring that are in different racks; two nodes make a ring, too."""
    if len(nodes) < 2:
        return 0
    racks = [places.get(node) or ("", node) for node in nodes]
    return sum(a != b for a, b in zip(racks, [*racks[1:], racks[0]], strict=True))
