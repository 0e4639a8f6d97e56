"""What an isolation knows, what it may do, and what it can come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.domain.findings import Finding
from gpuctl.nccl.model import Launch, Sweep

MIB = 1 << 20
# Two nodes tell nothing by the tree (its bus bandwidth may exceed the line rate), so pairs are forced to the ring.
RING = Sweep(begin_bytes=512 * MIB, end_bytes=4096 * MIB, env={"NCCL_ALGO": "Ring"}, limit_s=180.0)


@dataclass(frozen=True)
class Fleet:
    """The nodes to look at, in the order in which a ring would visit them.

    `racks`: node -> rack, for those where it is known. `rails`: the adapters that every node has, by the names that a
    launch is kept to; None: those that NCCL opens on all nodes. `expected_gbs`: the bus bandwidth that such a fleet
    should have, where a baseline knows it. `network`: what NCCL should use there ("efa", "ib", "roce", "socket").
    """

    nodes: tuple[str, ...]
    racks: Mapping[str, str] = field(default_factory=dict)
    rails: tuple[str, ...] | None = None
    expected_gbs: float | None = None
    network: str | None = None


@dataclass(frozen=True)
class Policy:
    """How sure one must be, and how far to go for it.

    `false_alarm`: the chance, for the whole isolation, that anything healthy is accused, as far as the noise is no
    worse than noise.py says. `rival`: how many times better a cause must explain the runs than any other one.
    `look_again`: from these odds on a slow run is looked into, where there are enough runs to know their spread;
    `let_go`: below these odds a suspect that also ran well is let go. Both are odds of "bad" against "chance" before
    asking how rare bad nodes are.
    `pairs_per_node`: the pairs in which every node is run, at least; more of them find faults that come and go.
    `most`: runs of one suspect after which it stays undecided. `least_gap`: a shortfall below this share is never held
    against anybody, however small the spread. `rest`: the share of what pairs reach that the confirmation must reach.
    """

    sweep: Sweep = RING
    false_alarm: float = 0.01
    rival: float = 100.0
    look_again: float = 3.0
    let_go: float = 60.0
    pairs_per_node: int = 1
    most: int = 14
    least_gap: float = 0.03
    rest: float = 0.8


class Kind(StrEnum):
    """What can be bad, and so which runs it spoils."""

    NODE = "node"  # every run of the node
    LINK = "link"  # the path between two nodes: runs of both
    UPLINK = "uplink"  # a rack's way out: runs of nodes in it together with nodes outside
    RACK = "rack"  # what a whole rack shares: every run with a node in it


@dataclass(frozen=True)
class Cause:
    """Something that may be bad. `names`: the node, the two nodes in order, or the rack."""

    kind: Kind
    names: tuple[str, ...]

    def __str__(self) -> str:
        first = self.names[0]
        words = {
            Kind.NODE: first,
            Kind.LINK: f"the path between {' and '.join(self.names)}",
            Kind.UPLINK: f"the uplink of rack {first}",
            Kind.RACK: f"rack {first}",
        }
        return words[self.kind]


@dataclass(frozen=True)
class Fault:
    """An accepted cause. `odds`: how many times likelier the runs are with it than by chance (natural logarithm).

    `failing`: its runs fail; else they are slow, by the share `slower` (0.2: a fifth). `bad` of its `runs` were so.
    `rail`: the adapter that it comes from, empty where that is not known; `rail_says` what the runs of single
    adapters came to.
    """

    cause: Cause
    odds: float
    failing: bool
    slower: float | None
    bad: tuple[int, ...]  # numbers of the runs in the history
    runs: tuple[int, ...]
    lost: bool = False
    rail: str = ""
    rail_says: str = ""
    bad_over_one: tuple[int, ...] = ()  # numbers of the bad runs over single adapters

    @property
    def flaky(self) -> bool:
        """Whether some of its runs were fine."""
        return len(self.bad) < len(self.runs)


@dataclass(frozen=True)
class Unresolved:
    """Bad runs that could not be laid on anything: which, what they may come from, and why it stayed open."""

    runs: tuple[int, ...]
    may_be: tuple[Cause, ...]
    why: str


@dataclass(frozen=True)
class Round:
    """Launches to make at the same time, none sharing a node with another, and what they are for."""

    launches: tuple[Launch, ...]
    why: str


@dataclass(frozen=True)
class Conclusion:
    """What the runs came to: who is guilty, what stayed open, what was chance, and the proof as findings.

    `used`: runs made; `budget`: what one hard fault may cost: N/2 pairs, two runs for every suspect pair, one
    confirmation. `rails`: how many of the runs used were kept to one adapter, which is beyond the budget's question.
    """

    faults: tuple[Fault, ...]
    unresolved: tuple[Unresolved, ...]
    chance: tuple[int, ...]
    findings: tuple[Finding, ...]
    used: int
    budget: int
    rails: int
