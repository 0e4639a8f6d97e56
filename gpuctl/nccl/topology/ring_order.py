"""The order of nodes in which a ring crosses from rack to rack as few times as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Place = tuple[str, ...]  # from the outermost down: (spine, leaf), or (rack,)


@dataclass(frozen=True)
class Order:
    """`before` and `after` are the same nodes. Crossings: neighbours in the ring that are in different racks.

    `unplaced`: nodes whose rack is not known; they stand last, and count as a rack of their own each.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    crossings_before: int
    crossings_after: int
    racks: Mapping[Place, tuple[str, ...]]
    unplaced: tuple[str, ...] = ()


def order(nodes: Sequence[str], places: Mapping[str, Place]) -> Order:
    """Bring nodes of one rack together, and racks of one spine, each in the order it first appeared in.

    With R racks a ring crosses at least R times (none with one rack), and this order crosses just so often.
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
    """Where each of the groups a place is in first appeared, outermost first; sorting by it is stable in a rack."""
    return [first[place[:depth]] for depth in range(1, len(place) + 1)]


def crossings(nodes: Sequence[str], places: Mapping[str, Place]) -> int:
    """Neighbours of the closed ring in different racks; one and two nodes make a ring, too."""
    if len(nodes) < 2:
        return 0
    racks = [places.get(node) or ("", node) for node in nodes]
    return sum(a != b for a, b in zip(racks, [*racks[1:], racks[0]], strict=True))
