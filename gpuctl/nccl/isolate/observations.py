"""The runs made so far, each with its shortfall against healthy runs of its own class."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from statistics import median

from gpuctl.domain.findings import Finding
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.isolate import fabric
from gpuctl.nccl.isolate.excluded_nodes import shut
from gpuctl.nccl.isolate.launch_outcomes import CUT_OFF, cut_off, never_began, stalled
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.isolate.noise import FEW, Reference, reference
from gpuctl.nccl.isolate.speed_clusters import Pair, SpeedClusters, cluster_speeds
from gpuctl.nccl.model import LaunchResult, Outcome

REACHES = 0.9  # of what a baseline expects: what is below this share is slow
FASTER = 0.12  # the lead (natural logarithm) over the usual pair from which another one is of another speed
FEW_NODES = 16  # among so many one pair of another speed has to be explained; among more these are …
FASTER_SHARE = 0.05  # … at least so many of all, as one may be a wild run
Speeds = Mapping[str, Mapping[frozenset[str], Sequence[float]]]  # place -> pair -> GB/s of each of its runs


@dataclass(frozen=True)
class Observation:
    """One run. `racks`: those of its nodes that are known. `place`: "within" a rack, "across" racks, or "" (unknown).

    `shortfall` is None where it failed (then `failed` says how) or where nothing is known to compare it with. What
    never began (then `never` says why) tells nothing of anybody.
    """

    number: int  # in the history
    nodes: tuple[str, ...]
    rail: str
    racks: frozenset[str]
    place: str
    gbs: float | None
    failed: str
    shortfall: float | None = None
    start_failure: str = ""

    @property
    def wrong(self) -> bool:
        """Whether it printed wrong values, which no healthy run ever does."""
        return self.failed == Outcome.CORRUPT

    @property
    def pair(self) -> bool:
        return len(self.nodes) == 2

    @property
    def slower_by(self) -> float:
        """The share by which it is slower than usual; below zero where it is faster, zero where not compared."""
        return 1 - math.exp(-(self.shortfall or 0.0))

    @property
    def informative(self) -> bool:
        """Whether it is evidence: it failed, or can be compared."""
        return bool(self.failed) or self.shortfall is not None


@dataclass(frozen=True)
class Evidence:
    """Everything seen. `pairs` are the runs of two nodes over all their adapters: what accusations rest on.

    `cut_off`: the runs that we lost contact in; those of them that did not end well count as never begun. `parted`:
    what pairs of two speeds come to where every pair was run. `shut`: the nodes that launches begin with no more.
    """

    fleet: Fleet
    runs: tuple[Observation, ...]
    references: Mapping[str, Reference]  # by place
    lost: frozenset[str]
    waiting: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    contact_lost: frozenset[int] = frozenset()
    history: Sequence[LaunchResult] = ()
    clusters: SpeedClusters = field(default_factory=SpeedClusters)
    excluded: frozenset[str] = frozenset()

    @cached_property
    def pairs(self) -> tuple[Observation, ...]:
        return tuple(run for run in self.runs if run.pair and not run.rail and not run.start_failure)

    @cached_property
    def failed_starts(self) -> tuple[Observation, ...]:
        """The launches of two nodes that never began."""
        return tuple(run for run in self.runs if run.pair and not run.rail and run.start_failure)

    @cached_property
    def launches_by_node(self) -> Mapping[str, list[Observation]]:
        """The launches of each node with another one, those that never began included."""
        return _by((node, run) for run in self.runs if run.pair and not run.rail for node in run.nodes)

    @cached_property
    def untested(self) -> tuple[str, ...]:
        """The nodes of which no launch with another one ever began, though it was tried."""
        return tuple(node for node in self.alive if node in self.launches_by_node and node not in self.runs_by_node)

    @cached_property
    def stalled(self) -> bool:
        """Whether launches begin with no nodes at all any more: then only the confirmation is worth a try."""
        return stalled(self.history)

    @cached_property
    def rails(self) -> tuple[str, ...]:
        """The adapters to run one at a time."""
        given = self.fleet.rails
        return fabric.rails(self.fleet, self.history) if given is None else given

    @cached_property
    def transport(self) -> list[Finding]:
        """What the rule of that name finds in all runs together."""
        return fabric.findings(self.fleet, self.history)

    @cached_property
    def pair_shortfalls(self) -> Mapping[Pair, float]:
        """The usual shortfall of each pair that can be compared."""
        gaps: dict[Pair, list[float]] = defaultdict(list)
        for run in self.pairs:
            if run.shortfall is not None:
                gaps[_two(run.nodes)].append(run.shortfall)
        return {pair: median(each) for pair, each in gaps.items()}

    @cached_property
    def faster_pairs(self) -> tuple[Pair, ...]:
        """The pairs that are far faster than the usual one: then it may be the usual ones that are slow."""
        found = tuple(pair for pair, gap in self.pair_shortfalls.items() if gap < -FASTER)
        few = len(self.alive) <= FEW_NODES
        return found if few or len(found) >= max(2, FASTER_SHARE * len(self.pair_shortfalls)) else ()

    @cached_property
    def runs_by_node(self) -> Mapping[str, list[Observation]]:
        """The pair runs of each node."""
        return _by((node, run) for run in self.pairs for node in run.nodes)

    @cached_property
    def runs_by_rack(self) -> Mapping[str, list[Observation]]:
        """The pair runs that touched each rack."""
        return _by((rack, run) for run in self.pairs for rack in run.racks)

    @cached_property
    def launches_across(self) -> Mapping[str, list[Observation]]:
        """The launches of two nodes that left each rack, those that never began included."""
        across = (run for run in self.runs if run.pair and not run.rail and run.place == "across")
        return _by((rack, run) for run in across for rack in run.racks)

    @cached_property
    def rack_sizes(self) -> Counter[str]:
        """How many of the nodes each rack has."""
        return Counter(self.fleet.racks[node] for node in self.fleet.nodes if node in self.fleet.racks)

    @cached_property
    def alive(self) -> tuple[str, ...]:
        return tuple(node for node in self.fleet.nodes if node not in self.lost)

    @property
    def usual_gbs(self) -> float | None:
        """What the usual pair reaches (GB/s), of the faster class."""
        return max((ref.gbs for ref in self.references.values()), default=None)

    @property
    def scale(self) -> float:
        """The spread of the class with the most runs."""
        return self._most.scale if self._most else 0.015

    @property
    def guessed(self) -> bool:
        """Whether that class has too few runs to know its spread."""
        return self._most is None or self._most.count < FEW

    @cached_property
    def _most(self) -> Reference | None:
        return max(self.references.values(), key=lambda ref: ref.count, default=None)


def last_never(launches: Sequence[Observation]) -> list[Observation]:
    """Those at the end that never began."""
    return list(takewhile(lambda run: run.start_failure, reversed(launches)))


def _by(items: Iterable[tuple[str, Observation]]) -> Mapping[str, list[Observation]]:
    found: dict[str, list[Observation]] = defaultdict(list)
    for key, run in items:
        found[key].append(run)
    return found


def observe(fleet: Fleet, history: Sequence[LaunchResult]) -> Evidence:
    """Read a history; runs with nodes that are not of the fleet are left out."""
    members = set(fleet.nodes)
    runs = [(n, end, speed(end.run)) for n, end in enumerate(history) if members.issuperset(end.launch.nodes)]
    away = cut_off(history)
    begun = [end for n, end in enumerate(history) if n not in away and not never_began(end)]
    lost = frozenset(node for end in begun for node in end.lost if node in members)
    closed = shut((end.launch.nodes, not never_began(end)) for _, end, _ in runs if len(end.launch.nodes) == 2)
    speeds = _speeds(fleet, runs)
    two_speeds = _parted(fleet, speeds, lost | closed)
    references = dict(_references(speeds, two_speeds.slow_nodes))
    waiting = {n: end.waiting for n, end in enumerate(history) if end.waiting}
    every = tuple(_seen(fleet, *run, references) for run in runs)
    every = tuple(
        replace(run, start_failure=CUT_OFF, failed="") if run.number in away and run.gbs is None else run
        for run in every
    )
    return Evidence(fleet, every, references, lost, waiting, away, history, two_speeds, closed)


def _speeds(fleet: Fleet, runs: Iterable[tuple[int, LaunchResult, float | None]]) -> Speeds:
    found: dict[str, dict[frozenset[str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, end, gbs in runs:
        if gbs is not None and _compares(end):
            found[_place(fleet, end.launch.nodes)][frozenset(end.launch.nodes)].append(gbs)
    return found


def _parted(fleet: Fleet, speeds: Speeds, gone: Set[str]) -> SpeedClusters:
    """What the pairs part in, each by the median of its runs; without nodes whose other pairs can be run no more."""
    usual = [
        {_two(pair): median(runs) for pair, runs in found.items() if gone.isdisjoint(pair)} for found in speeds.values()
    ]
    return cluster_speeds(usual, None if fleet.expected_gbs is None else REACHES * fleet.expected_gbs)


def _two(pair: Iterable[str]) -> Pair:
    one, other = sorted(pair)
    return one, other


def _references(speeds: Speeds, apart: Set[str]) -> Iterator[tuple[str, Reference]]:
    """Of every class, by runs without the nodes that are set apart; a class that none are left of has no reference."""
    for place, found in speeds.items():
        ref = reference([gbs for pair, runs in found.items() if apart.isdisjoint(pair) for gbs in runs])
        if ref is not None:
            yield place, replace(ref, count=sum(map(len, found.values())))


def _compares(end: LaunchResult) -> bool:
    return len(end.launch.nodes) == 2 and not end.launch.rail


def _place(fleet: Fleet, nodes: Sequence[str]) -> str:
    racks = {fleet.racks.get(node) for node in nodes}
    return "" if None in racks else "across" if len(racks) > 1 else "within"


def _seen(
    fleet: Fleet, number: int, end: LaunchResult, gbs: float | None, references: Mapping[str, Reference]
) -> Observation:
    nodes, place = end.launch.nodes, _place(fleet, end.launch.nodes)
    racks = frozenset(fleet.racks[node] for node in nodes if node in fleet.racks)
    never = never_began(end)
    failed = "" if gbs is not None or never else str(end.run.outcome)
    if end.run.outcome is Outcome.COMPLETE and gbs is None:
        failed = "no bandwidth printed"
    shortfall = _shortfall(gbs, place, references) if gbs is not None and _compares(end) else None
    return Observation(number, nodes, end.launch.rail, racks, place, gbs, failed, shortfall, never)


def _shortfall(gbs: float, place: str, references: Mapping[str, Reference]) -> float | None:
    own, within = references.get(place), references.get("within")
    if own is None:
        return None
    if own.count > 1:
        return math.log(own.gbs / gbs)
    if within is None or place != "across":
        return None
    # The only one across racks: held against runs within racks it can be cleared, but not found slow.
    beside = math.log(within.gbs / gbs)
    return beside if beside < 4 * within.scale else None
