"""Select the logins to test before a run: those that mpirun needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Peers(NamedTuple):
    """Nodes that a node logs in to (`peers`), and nodes whose names it resolves (`look_up`)."""

    peers: tuple[str, ...]
    look_up: tuple[str, ...]


ALONE = Peers((), ())


def peers(nodes: Sequence[str]) -> dict[str, Peers]:
    """The first node logs in to every other, as mpirun does; every other to the next in a ring, and resolves the first.

    All pairs would be a million logins among 1,024 nodes. The ring tests every node as client and as server, so that
    wrong keys or names of a node show, whichever node a later run starts from.
    """
    if len(nodes) < 2:
        return dict.fromkeys(nodes, ALONE)
    first, rest = nodes[0], tuple(nodes[1:])
    following = dict(zip(nodes, [*rest, first], strict=True))
    others = {node: Peers((following[node],), tuple(dict.fromkeys((following[node], first)))) for node in rest}
    return {first: Peers(rest, rest), **others}
