"""Faults of a simulated fleet: the runs that they affect, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Fault:
    """`kind`: slow, hang, crash, corrupt or vanish. `where`: node, rail, link or uplink; `what`: its names.

    The names of a link are empty until the first round, which then chooses one of its pairs.

    `share`: the share of the speed that a slow one costs (0.2: a fifth). `chance`: the share of runs that it affects.
    `times`: the largest number of runs that it affects; None: no limit.
    """

    kind: str
    where: str
    what: tuple[str, ...]  # (node,), (node, adapter), (node, node), (rack,)
    share: float = 0.0
    chance: float = 1.0
    times: int | None = None

    def meets(self, nodes: Sequence[str], rail: str, racks: set[str]) -> bool:
        """True if it may affect a run over these nodes and this adapter ("": all of them)."""
        if self.where == "node":
            return self.what[0] in nodes
        if self.where == "rail":
            return self.what[0] in nodes and rail in ("", self.what[1])
        if self.where == "uplink":
            return len(racks) > 1 and self.what[0] in racks
        return _next_to_each_other(self.what, nodes)


def _next_to_each_other(pair: Sequence[str], nodes: Sequence[str]) -> bool:
    """True if they are neighbours in a ring over the nodes."""
    if not set(pair) <= set(nodes):
        return False
    apart = abs(nodes.index(pair[0]) - nodes.index(pair[1]))
    return apart in (1, len(nodes) - 1)


SLOW = (0.05, 0.1, 0.2, 0.5)


KINDS = {"slow": 3, "rail": 2, "link": 1, "uplink": 1, "hang": 1, "crash": 1, "corrupt": 1, "vanish": 1}


def hard(random: Random, nodes: Sequence[str], racks: dict[str, str], rails: Sequence[str]) -> Fault:
    """A random fault that affects every run: mostly a slow node or adapter, by one of SLOW; otherwise another kind."""
    node = random.choice(nodes)
    (kind,) = random.choices(list(KINDS), list(KINDS.values()))
    share = random.choice(SLOW)
    if kind == "slow":
        return Fault("slow", "node", (node,), share)
    if kind == "rail":
        return Fault("slow", "rail", (node, random.choice(rails)), share)
    if kind == "uplink":
        return Fault("slow", "uplink", (random.choice(sorted(set(racks.values()))),), share)
    if kind == "link":
        return Fault("hang", "link", ())
    return Fault(kind, "node", (node,))
