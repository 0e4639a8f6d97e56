"""Values of an isolation: the fleet, the policy, causes and faults, a round of launches, the conclusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.domain.findings import Finding
from gpuctl.nccl.model import Launch, Sweep

MIB = 1 << 20
# On two nodes the Tree algorithm may report more bus bandwidth than the line rate, so pairs are forced to the ring.
RING = Sweep(begin_bytes=512 * MIB, end_bytes=4096 * MIB, env={"NCCL_ALGO": "Ring"}, limit_s=180.0)


@dataclass(frozen=True)
class Fleet:
    """The nodes under test, in the order in which a ring would visit them.

    `racks`: node -> rack, for the nodes whose rack is known. `rails`: the adapters that every node has, by the names
    that restrict a launch to one of them; None stands for those that NCCL opens on all nodes. `expected_gbs`: the bus
    bandwidth that a baseline expects, None without one. `network`: the network NCCL should use ("efa", "ib", "roce",
    "socket").
    """

    nodes: tuple[str, ...]
    racks: Mapping[str, str] = field(default_factory=dict)
    rails: tuple[str, ...] | None = None
    expected_gbs: float | None = None
    network: str | None = None


@dataclass(frozen=True)
class Policy:
    """The confidence that an accusation needs, and the number of runs that may be spent on it.

    `false_alarm`: the chance, over the whole isolation, that a healthy part is accused, as long as the noise is no
    worse than noise.py assumes. `rival`: the factor by which a cause must explain the runs better than any other.
    `look_again`: a slow run is followed up from these odds on, once there are enough runs to know their spread;
    `let_go`: a suspect that also ran well is dropped below these odds; `let_go_mild`: the same if its bad runs are near
    the usual scatter. All are odds of "bad" against "chance", before the rarity of bad nodes is taken into account.
    `pairs_per_node`: the least number of pairs in which every node is run; more pairs find intermittent faults.
    `most`: the number of runs after which a suspect stays undecided. `least_gap`: a shortfall below this share is never
    held against a node, however small the spread. `rest`: the share of a pair's bandwidth that the confirmation run
    must reach.
    """

    sweep: Sweep = RING
    false_alarm: float = 0.01
    rival: float = 100.0
    look_again: float = 3.0
    let_go: float = 4.0
    let_go_mild: float = 60.0
    pairs_per_node: int = 1
    most: int = 20
    least_gap: float = 0.03
    rest: float = 0.8


class Kind(StrEnum):
    """The kinds of causes; each spoils other runs."""

    NODE = "node"  # every run of the node
    LINK = "link"  # the path between two nodes: runs of both
    UPLINK = "uplink"  # a rack's uplink: runs of nodes in the rack with nodes outside
    RACK = "rack"  # a part that a whole rack shares: every run with a node in it


@dataclass(frozen=True)
class Cause:
    """A part that may be bad. `names`: the node, the two nodes in order, or the rack."""

    kind: Kind
    names: tuple[str, ...]

    def __str__(self) -> str:
        first = self.names[0]
        names = {
            Kind.NODE: first,
            Kind.LINK: f"the path between {' and '.join(self.names)}",
            Kind.UPLINK: f"the uplink of rack {first}",
            Kind.RACK: f"rack {first}",
        }
        return names[self.kind]


@dataclass(frozen=True)
class Fault:
    """An accepted cause. `odds`: natural logarithm of how many times likelier the runs are with it than by chance.

    `failing`: its runs fail; otherwise they are slow, by the share `slower` (0.2: a fifth). `bad` of its `runs` were
    bad. `lost`: the node stopped answering. `rail`: the adapter that causes it, empty if unknown; `rail_summary`: the
    result of the runs over single adapters, in a sentence.
    """

    cause: Cause
    odds: float
    failing: bool
    slower: float | None
    bad: tuple[int, ...]  # numbers of the runs in the history
    runs: tuple[int, ...]
    lost: bool = False
    rail: str = ""
    rail_summary: str = ""
    bad_over_one: tuple[int, ...] = ()  # numbers of the bad runs over single adapters

    @property
    def intermittent(self) -> bool:
        """True if some of its runs were fine."""
        return len(self.bad) < len(self.runs)


@dataclass(frozen=True)
class Unresolved:
    """Bad runs without an accepted cause: the runs, the causes still possible, and the reason they stay open."""

    runs: tuple[int, ...]
    may_be: tuple[Cause, ...]
    why: str


@dataclass(frozen=True)
class Round:
    """Launches to start at the same time, no two of which share a node, and their purpose."""

    launches: tuple[Launch, ...]
    why: str


@dataclass(frozen=True)
class Conclusion:
    """The result of an isolation: faults, unresolved runs, runs put down to chance, and the evidence as findings.

    `used`: the number of runs. `budget`: the runs that one hard fault may cost: N/2 pairs, two runs for every suspect
    pair, the confirmations. It does not cover `rails`, the number of runs over single adapters, and `controls`, that of
    known-good pairs beside suspects, which take no time of their own.
    """

    faults: tuple[Fault, ...]
    unresolved: tuple[Unresolved, ...]
    chance: tuple[int, ...]
    findings: tuple[Finding, ...]
    used: int
    budget: int
    rails: int
    controls: int = 0
