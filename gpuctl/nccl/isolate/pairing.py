"""Disjoint pairs of all nodes: within racks, and one or two from each rack to other racks, which test the uplinks.

Within a rack equals are compared. One node at each end of a rack is paired with a node of the next rack: the number of
runs stays N/2, every uplink carries at most two of them at a time (an oversubscribed one is not slow just because it
carries many), and a slow uplink spoils two runs that have only that rack in common. A rack with an odd number of nodes
has one such end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

Pair = tuple[str, str]


def pairs(nodes: Sequence[str], racks: Mapping[str, str], turn: int = 0) -> list[Pair]:
    """Disjoint pairs; another `turn` gives other partners. With an odd number of nodes, one node remains."""
    if not all(node in racks for node in nodes) or len({racks[node] for node in nodes}) < 2:
        return neighbours(nodes, turn)
    members: dict[str, list[str]] = {}
    for node in nodes:
        members.setdefault(racks[node], []).append(node)
    result: list[Pair] = []
    both, single = [], []
    for inside in members.values():
        order = _turned(inside, turn)
        if len(order) % 2:
            single.append(order.pop())
        elif len(order) > 2:
            both.append((order.pop(0), order.pop()))
        result += zip(order[::2], order[1::2], strict=True)
    result += _ring(both)
    result += zip(single[::2], single[1::2], strict=False)
    return result


def neighbours(nodes: Sequence[str], turn: int) -> list[Pair]:
    """Pairs of nodes near each other in order, which racks usually follow: at distance 1, shifted by 1, at 2, …"""
    apart, shift = turn // 2 + 1, (turn % 2) * (turn // 2 + 1)
    order = list(nodes[shift:]) + list(nodes[:shift])
    result: list[Pair] = []
    left: list[str] = []
    for start in range(0, len(order), 2 * apart):
        first, second = order[start : start + apart], order[start + apart : start + 2 * apart]
        result += zip(first, second, strict=False)
        left += first[len(second) :]
    return result + list(zip(left[::2], left[1::2], strict=False))


def strangers(chosen: Sequence[Pair], met: Set[frozenset[str]], racks: Mapping[str, str]) -> list[Pair]:
    """The pairs with partners exchanged where two have met before, so that both get others; racks keep their runs.

    Where some nodes are left out of a turn, it may bring the others together again, which shows nothing new of them.
    """
    result = list(chosen)
    for at, pair in enumerate(result):
        if frozenset(pair) in met:
            exchanges = (found for to in range(len(result)) if to != at for found in _exchanges(at, to, result, racks))
            new = next((e for e in exchanges if met.isdisjoint(map(frozenset, e.values()))), {})
            for place, other in new.items():
                result[place] = other
    return result


def _exchanges(at: int, to: int, pairs: Sequence[Pair], racks: Mapping[str, str]) -> Iterator[dict[int, Pair]]:
    """Two pairs with partners exchanged, by their places, in each way that leaves the runs between racks as many."""
    for one, other in (pairs[at], pairs[at][::-1]):
        for third, fourth in (pairs[to], pairs[to][::-1]):
            if racks.get(other) == racks.get(fourth):
                yield {at: (one, fourth), to: (third, other)}


def _turned(inside: Sequence[str], turn: int) -> list[str]:
    """The order of a rack's nodes at a turn: every node gets other neighbours, and other nodes are at the ends."""
    count = len(inside)
    if turn == 0 or count < 4:
        shift = turn % count
        return [*inside[shift:], *inside[:shift]]
    even = count - count % 2
    first, others = inside[0], list(inside[1:even])
    shift = turn % len(others)
    others = others[shift:] + others[:shift]
    circle = [first, *others]
    order = [node for i in range(even // 2) for node in (circle[i], circle[even - 1 - i])]
    odd = list(inside[even:])
    return _swapped(odd, order, turn) if odd else order[1:] + order[:1] if turn % 2 else order


def _swapped(odd: list[str], order: list[str], turn: int) -> list[str]:
    """Another node is the odd one at each turn."""
    place = turn % len(order)
    return [*order[:place], odd[0], *order[place + 1 :], order[place]]


def _ring(both: Sequence[Pair]) -> list[Pair]:
    """Each rack's last node with the next rack's first one; a single rack pairs its own two."""
    return [(last, both[(i + 1) % len(both)][0]) for i, (_, last) in enumerate(both)]
