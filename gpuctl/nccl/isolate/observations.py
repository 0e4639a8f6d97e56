"""The runs so far as evidence: each with its shortfall against healthy runs of the same class."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import TypeVar

from gpuctl.domain.findings import Finding
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.isolate import fabric
from gpuctl.nccl.isolate.drift import Drift, PairRun
from gpuctl.nccl.isolate.drift import drift as drift_of
from gpuctl.nccl.isolate.launch_failures import (
    CUT_OFF,
    cut_off,
    excluded_nodes,
    never_started,
    rounds_of,
    stalled,
)
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.isolate.noise import FEW, FEWER, Reference, at_least_across, reference
from gpuctl.nccl.isolate.speed_clusters import APART, LEAST, Pair, SpeedClusters, cluster_speeds
from gpuctl.nccl.model import LaunchResult, Outcome

REACHES = 0.9  # share of a baseline's bandwidth below which a run is slow
FAR_SPREADS = 6.0  # shortfall or lead in spreads from which a pair has another speed than the usual one
LEAST_ACROSS = 4  # runs across racks whose speed shows that those within racks are slow
FEW_NODES = 16  # up to so many nodes a single faster pair needs an explanation; above …
FASTER_SHARE = 0.05  # … only if they are at least this share of all pairs, as one may be an outlier
Key = TypeVar("Key", bound=Hashable)
Speeds = Mapping[str, Mapping[frozenset[str], Sequence[float]]]  # place -> pair -> GB/s of each of its runs


@dataclass(frozen=True)
class Observation:
    """One run. `racks`: the known racks of its nodes. `place`: "within" a rack, "across" racks, or "" (unknown).

    `shortfall` is the natural logarithm of (reference / speed), None for a failed run (`failed` says how) and for a run
    without comparable ones. A run that never started is no evidence; `start_failure` says why it did not.
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
        """True if it printed wrong values, which a healthy run never does."""
        return self.failed == Outcome.CORRUPT

    @property
    def pair(self) -> bool:
        return len(self.nodes) == 2

    @property
    def slower_by(self) -> float:
        """The share by which it is slower than usual: negative if faster, zero if not compared."""
        return 1 - math.exp(-(self.shortfall or 0.0))

    @property
    def informative(self) -> bool:
        """True if it is evidence: it failed, or can be compared."""
        return bool(self.failed) or self.shortfall is not None


@dataclass(frozen=True)
class Evidence:
    """All runs of a fleet. Accusations rest on `pairs`: runs of two nodes over all their adapters.

    `references`: the healthy speed by place. `lost`: nodes that stopped answering. `waiting`: run -> node -> state of
    its ranks in a hang. `contact_lost`: the runs of rounds in which contact was lost; those that did not complete count
    as never started. `clusters`: the speed classes of the pairs, once every pair was run. `excluded`: nodes on which
    launches no longer start. `drift`: the change of the fabric's speed from round to round, which shortfalls leave out.
    """

    fleet: Fleet
    runs: tuple[Observation, ...]
    references: Mapping[str, Reference]
    lost: frozenset[str]
    waiting: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    contact_lost: frozenset[int] = frozenset()
    history: Sequence[LaunchResult] = ()
    clusters: SpeedClusters = field(default_factory=SpeedClusters)
    excluded: frozenset[str] = frozenset()
    drift: Drift = field(default_factory=lambda: Drift({}, frozenset()))

    @cached_property
    def pairs(self) -> tuple[Observation, ...]:
        return tuple(run for run in self.runs if run.pair and not run.rail and not run.start_failure)

    @cached_property
    def failed_starts(self) -> tuple[Observation, ...]:
        """The launches of two nodes that never started."""
        return tuple(run for run in self.runs if run.pair and not run.rail and run.start_failure)

    @cached_property
    def launches_by_node(self) -> Mapping[str, list[Observation]]:
        """The launches of each node with one other node, failed starts included."""
        return _by((node, run) for run in self.runs if run.pair and not run.rail for node in run.nodes)

    @cached_property
    def untested(self) -> tuple[str, ...]:
        """The nodes whose launches with one other node all failed to start."""
        return tuple(node for node in self.alive if node in self.launches_by_node and node not in self.runs_by_node)

    @cached_property
    def stalled(self) -> bool:
        """True if launches no longer start on any node: then only the confirmation is worth a try."""
        return stalled(self.history)

    def is_steady(self, run: Observation) -> bool:
        """True if another run of the pair shows the speed of the fabric: neither of its nodes was ever slow."""
        return run.shortfall is not None and self.drift.suspects.isdisjoint(run.nodes)

    def place(self, nodes: Sequence[str]) -> str:
        """The place of a run over these nodes, see Observation."""
        return _place(self.fleet, nodes)

    @cached_property
    def rails(self) -> tuple[str, ...]:
        """The adapters to run one at a time."""
        rails = self.fleet.rails
        return fabric.rails(self.fleet, self.history) if rails is None else rails

    @cached_property
    def transport(self) -> list[Finding]:
        """The findings of the rule "transport" over all runs together."""
        return fabric.findings(self.fleet, self.history)

    @cached_property
    def pair_shortfalls(self) -> Mapping[Pair, float]:
        """The median shortfall of each pair that can be compared."""
        shortfalls: dict[Pair, list[float]] = defaultdict(list)
        for run in self.pairs:
            if run.shortfall is not None:
                shortfalls[ordered(run.nodes)].append(run.shortfall)
        return {pair: median(values) for pair, values in shortfalls.items()}

    @cached_property
    def faster_pairs(self) -> tuple[Pair, ...]:
        """The pairs that are far faster than the usual one, in which case the usual ones may be the slow ones."""
        faster = tuple(pair for pair, shortfall in self.pair_shortfalls.items() if shortfall < -self.far)
        few = len(self.alive) <= FEW_NODES
        return faster if few or len(faster) >= max(2, FASTER_SHARE * len(self.pair_shortfalls)) else ()

    @cached_property
    def runs_by_node(self) -> Mapping[str, list[Observation]]:
        """The pair runs of each node."""
        return _by((node, run) for run in self.pairs for node in run.nodes)

    @cached_property
    def runs_by_pair(self) -> Mapping[tuple[str, ...], list[Observation]]:
        """The runs of each pair, by its names in alphabetical order."""
        return _by((ordered(run.nodes), run) for run in self.pairs)

    @cached_property
    def runs_by_rack(self) -> Mapping[str, list[Observation]]:
        """The pair runs that touched each rack."""
        return _by((rack, run) for run in self.pairs for rack in run.racks)

    @cached_property
    def launches_across(self) -> Mapping[str, list[Observation]]:
        """The launches of two nodes that leave each rack, failed starts included."""
        across = (run for run in self.runs if run.pair and not run.rail and run.place == "across")
        return _by((rack, run) for run in across for rack in run.racks)

    @cached_property
    def rack_sizes(self) -> Counter[str]:
        """The number of nodes in each rack."""
        return Counter(self.fleet.racks[node] for node in self.fleet.nodes if node in self.fleet.racks)

    @cached_property
    def alive(self) -> tuple[str, ...]:
        return tuple(node for node in self.fleet.nodes if node not in self.lost)

    @property
    def usual_gbs(self) -> float | None:
        """The speed of the usual pair (GB/s), in the faster class; None without a comparable pair."""
        return max((ref.gbs for ref in self.references.values()), default=None)

    @property
    def scale(self) -> float:
        """The spread of the class with the most runs."""
        return self._most.scale if self._most else 0.015

    @property
    def far(self) -> float:
        """The distance from the usual pair (natural logarithm) from which a pair has another speed."""
        if self._most is None or self._most.count < FEWER:
            return APART
        return min(APART, max(LEAST, FAR_SPREADS * self.scale))

    @property
    def guessed(self) -> bool:
        """True if that class has too few runs to know its spread."""
        return self._most is None or self._most.count < FEW

    def repeat_spread(self, spoilt: Callable[[Observation], bool]) -> float:
        """The spread (standard deviation, relative) of repeated runs of the same nodes, without spoilt ones; 0 of none.

        It is what the fleet itself shows, and what is bad has no part in it.
        """
        repeats = ((logs, run) for run, logs in self._repeats.values() if len(logs) > 1 and not spoilt(run))
        return _pooled([(len(logs) - 1, _squares(logs)) for logs, _ in repeats])

    @cached_property
    def _repeats(self) -> Mapping[frozenset[str], tuple[Observation, list[float]]]:
        """A run of each set of nodes, and the logarithms of their speeds; of pairs without the fabric's drift."""
        logs: dict[frozenset[str], tuple[Observation, list[float]]] = {}
        for run in self.runs:
            if run.pair and run.shortfall is not None and not run.rail:
                logs.setdefault(frozenset(run.nodes), (run, []))[1].append(-run.shortfall)
            elif not run.pair and not run.failed and run.gbs:
                logs.setdefault(frozenset(run.nodes), (run, []))[1].append(math.log(run.gbs))
        return logs

    @cached_property
    def _most(self) -> Reference | None:
        return max(self.references.values(), key=lambda ref: ref.count, default=None)


def _squares(values: Sequence[float]) -> float:
    """The sum of the squared distances from the mean."""
    middle = sum(values) / len(values)
    return sum((value - middle) ** 2 for value in values)


def _pooled(groups: Sequence[tuple[int, float]]) -> float:
    """The standard deviation of groups, each with its degrees of freedom and sum of squares."""
    freedom = sum(count for count, _ in groups)
    return math.sqrt(sum(squares for _, squares in groups) / freedom) if freedom else 0.0


def _by(items: Iterable[tuple[Key, Observation]]) -> Mapping[Key, list[Observation]]:
    runs: dict[Key, list[Observation]] = defaultdict(list)
    for key, run in items:
        runs[key].append(run)
    return runs


def observe(fleet: Fleet, history: Sequence[LaunchResult]) -> Evidence:
    """The evidence of a history; runs with nodes outside the fleet are left out."""
    members = set(fleet.nodes)
    runs = [(n, end, speed(end.run)) for n, end in enumerate(history) if members.issuperset(end.launch.nodes)]
    contact_lost = cut_off(history)
    started = [end for n, end in enumerate(history) if n not in contact_lost and not never_started(end)]
    lost = frozenset(node for end in started for node in end.lost if node in members)
    pairs = [end for _, end, _ in runs if len(end.launch.nodes) == 2]
    excluded = excluded_nodes((end.launch.nodes, not never_started(end)) for end in pairs)
    drift = drift_of(_pair_rounds(fleet, history, {n: gbs for n, _, gbs in runs}))
    speeds = _speeds(fleet, runs, drift.changes)
    clusters = _clusters(fleet, speeds, lost | excluded)
    references = at_least_across(dict(_references(speeds, clusters.slow_nodes)), LEAST_ACROSS)
    waiting = {n: end.waiting for n, end in enumerate(history) if end.waiting}
    every = tuple(_observation(fleet, run, references, drift.changes.get(run[0], 0.0)) for run in runs)
    every = tuple(
        replace(run, start_failure=CUT_OFF, failed="")
        if run.number in contact_lost and run.gbs is None and not run.wrong
        else run
        for run in every
    )
    return Evidence(fleet, every, references, lost, waiting, contact_lost, history, clusters, excluded, drift)


def _pair_rounds(
    fleet: Fleet, history: Sequence[LaunchResult], speeds: Mapping[int, float | None]
) -> list[list[PairRun]]:
    """The comparable runs of each round; failed starts are left out."""
    return [
        [
            PairRun(n, frozenset(history[n].launch.nodes), _place(fleet, history[n].launch.nodes), speeds[n])
            for n in numbers
            if n in speeds and _is_comparable(history[n]) and not never_started(history[n])
        ]
        for numbers in rounds_of(history)
    ]


def _speeds(fleet: Fleet, runs: Iterable[tuple[int, LaunchResult, float | None]], drift: Mapping[int, float]) -> Speeds:
    """The speeds of all pairs, as if the fabric had kept its first one."""
    speeds: dict[str, dict[frozenset[str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, end, gbs in runs:
        if gbs is not None and _is_comparable(end):
            steady = gbs * math.exp(drift.get(number, 0.0))
            speeds[_place(fleet, end.launch.nodes)][frozenset(end.launch.nodes)].append(steady)
    return speeds


def _clusters(fleet: Fleet, speeds: Speeds, gone: Set[str]) -> SpeedClusters:
    """The clusters of the pairs' median speeds, without nodes whose other pairs can no longer be run."""
    usual = [
        {ordered(pair): median(runs) for pair, runs in pairs.items() if gone.isdisjoint(pair)}
        for pairs in speeds.values()
    ]
    return cluster_speeds(usual, None if fleet.expected_gbs is None else REACHES * fleet.expected_gbs)


def ordered(pair: Iterable[str]) -> Pair:
    """The two nodes of a pair in alphabetical order."""
    one, other = sorted(pair)
    return one, other


def _references(speeds: Speeds, slow_nodes: Set[str]) -> Iterator[tuple[str, Reference]]:
    """The reference of every class, by runs without slow nodes; a class without such runs has none."""
    for place, pairs in speeds.items():
        ref = reference([gbs for pair, runs in pairs.items() if slow_nodes.isdisjoint(pair) for gbs in runs])
        if ref is not None:
            yield place, replace(ref, count=sum(map(len, pairs.values())))


def _is_comparable(end: LaunchResult) -> bool:
    return len(end.launch.nodes) == 2 and not end.launch.rail


def _place(fleet: Fleet, nodes: Sequence[str]) -> str:
    racks = {fleet.racks.get(node) for node in nodes}
    return "" if None in racks else "across" if len(racks) > 1 else "within"


def _observation(
    fleet: Fleet, run: tuple[int, LaunchResult, float | None], references: Mapping[str, Reference], drift: float
) -> Observation:
    number, end, gbs = run
    nodes, place = end.launch.nodes, _place(fleet, end.launch.nodes)
    racks = frozenset(fleet.racks[node] for node in nodes if node in fleet.racks)
    start_failure = never_started(end)
    failed = "" if gbs is not None or start_failure else str(end.run.outcome)
    if end.run.outcome is Outcome.COMPLETE and gbs is None:
        failed = "no bandwidth printed"
    steady = None if gbs is None else gbs * math.exp(drift)
    shortfall = _shortfall(steady, place, references) if steady is not None and _is_comparable(end) else None
    return Observation(number, nodes, end.launch.rail, racks, place, gbs, failed, shortfall, start_failure)


def _shortfall(gbs: float, place: str, references: Mapping[str, Reference]) -> float | None:
    same_place, within = references.get(place), references.get("within")
    if same_place is None:
        return None
    if same_place.count > 1:
        return math.log(same_place.gbs / gbs)
    if within is None or place != "across":
        return None
    # A single run across racks: runs within racks can show that it is fine, but not that it is slow.
    shortfall = math.log(within.gbs / gbs)
    return shortfall if shortfall < 4 * within.scale else None
