"""Which node tries to reach which before a run: what mpirun needs, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Peers(NamedTuple):
    """Whom a node logs in to (`peers`), and whose names it looks up (`look_up`)."""

    peers: tuple[str, ...]
    look_up: tuple[str, ...]


ALONE = Peers((), ())


def peers(nodes: Sequence[str]) -> dict[str, Peers]:
    """The first node gets onto every other, as mpirun does; each other onto the next in a ring, and finds the first.

    All pairs would be a million logins among 1,024 nodes. In the ring every node is tried as one who goes and as one
    who is come to: a node whose own keys or names are wrong shows itself, whichever node a later run starts from.
    """
    if len(nodes) < 2:
        return dict.fromkeys(nodes, ALONE)
    first, rest = nodes[0], tuple(nodes[1:])
    following = dict(zip(nodes, [*rest, first], strict=True))
    others = {node: Peers((following[node],), tuple(dict.fromkeys((following[node], first)))) for node in rest}
    return {first: Peers(rest, rest), **others}
