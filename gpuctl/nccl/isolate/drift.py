"""Changes of the whole fabric's speed from round to round, measured by pairs that are known to be good.

A fabric that other jobs load becomes slower or faster while an isolation goes on. Compared with the first round, a
healthy suspect would then look bad, or a bad one healthy. Therefore every round of retests includes control pairs
(controls.py), and its runs are compared as if the fabric had its first speed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from gpuctl.nccl.isolate.noise import Reference, at_least_across, reference, scatter

LEAST = 0.01  # a smaller change (natural logarithm) is not corrected
SURE = 3.0  # a change is corrected from so many standard errors on
MANY = 16  # runs of good nodes in a round from which the usual pair is a control, too
FEWEST_ACROSS = 2  # runs across racks from which slower ones within racks are those of slow nodes, and no controls
SLOW, SPREADS = 0.03, 4.0  # a run that is slower than the reference by both is not fine


@dataclass(frozen=True)
class PairRun:
    """A pair run of a history. `gbs`: None if it failed. `place`: see Observation."""

    number: int
    nodes: frozenset[str]
    place: str
    gbs: float | None


@dataclass(frozen=True)
class Drift:
    """The change of the fabric in the rounds of a history.

    `changes`: run number -> natural logarithm of (first speed of the fabric / its speed in that round), 0 is left out.
    `controls`: the numbers of the runs that measured it: good pairs that had run before. `suspects`: nodes of runs that
    were slow or failed, which are in no control.
    """

    changes: Mapping[int, float]
    controls: frozenset[int]
    suspects: frozenset[str] = frozenset()


def drift(rounds: Sequence[Sequence[PairRun]]) -> Drift:
    """The change of every round, by the runs of pairs whose nodes never were in a bad run."""
    known = _Known()
    changes: dict[int, float] = {}
    controls: set[int] = set()
    for runs in rounds:
        controls |= {run.number for run in runs if known.is_control(run)}
        by_place = known.changes(runs)
        for run in runs:
            change = by_place.get(run.place, 0.0)
            known.add(run, change)
            if change and run.gbs is not None:
                changes[run.number] = change
    return Drift(changes, frozenset(controls), known.suspects)


class _Known:
    """The pairs that ran so far, at the fabric's first speed, and the nodes that were in a run that was not fine."""

    def __init__(self) -> None:
        self._references: dict[str, Reference] = {}
        self._scatter: dict[str, float] = {}  # as it was seen; a reference assumes more where runs are few
        self._speeds: dict[frozenset[str], list[float]] = defaultdict(list)  # logarithms
        self._suspects: set[str] = set()
        self._last = 0.0

    @property
    def suspects(self) -> frozenset[str]:
        return frozenset(self._suspects)

    def is_control(self, run: PairRun) -> bool:
        return run.gbs is not None and run.nodes in self._speeds and self._suspects.isdisjoint(run.nodes)

    def changes(self, runs: Sequence[PairRun]) -> Mapping[str, float]:
        """The change of each place (within, across) in a round; that of all together where a place has no control."""
        new = {run.place for run in runs} - set(self._references)
        for place in new:
            ref = reference([run.gbs for run in runs if run.place == place and run.gbs is not None])
            if ref is not None:
                self._references[place] = ref
                seen = scatter([run.gbs for run in runs if run.place == place and run.gbs is not None])
                self._scatter[place] = seen if ref.count > 1 else ref.scale  # a single run shows none
        self._references = dict(at_least_across(self._references, FEWEST_ACROSS))
        measured: dict[str, list[float]] = defaultdict(list)
        for place in {run.place for run in runs} - new:
            measured[place] = self._measured([run for run in runs if run.place == place])
        controls = [change for changes in measured.values() for change in changes]
        # Without a control the fabric is taken to be as slow as at last, not as fast: that could accuse healthy nodes.
        every = self._last = self._change(controls) if controls else max(0.0, self._last)
        changes = {place: self._change(found) if found else every for place, found in measured.items()}
        return {place: self._possible(change, place, runs) for place, change in changes.items()}

    def _possible(self, change: float, place: str, runs: Sequence[PairRun]) -> float:
        """The change, as far as it leaves every run of a place no faster than healthy ones; never negative for that.

        A control that a disturbance slowed down would otherwise make all others of its round look faster than they
        are. One that is far slower than all others shows nothing: the fastest run then shows the change.
        """
        ref = self._references[place]
        best = max((run.gbs for run in runs if run.place == place and run.gbs is not None), default=ref.gbs)
        least, slack = math.log(ref.gbs / best), SURE * self._scatter[place]
        if change > max(0.0, least) + 2 * slack:
            return least if least > max(LEAST, slack) else 0.0
        return min(change, max(0.0, least + slack))

    def _measured(self, runs: Sequence[PairRun]) -> list[float]:
        """What each control of one place measured: pairs that ran before, else all pairs of good nodes if many."""
        controls = [run for run in runs if self.is_control(run)]
        again = [median(self._speeds[run.nodes]) - math.log(run.gbs or 1) for run in controls]
        good = [run for run in runs if run.gbs is not None and self._suspects.isdisjoint(run.nodes)]
        if again or len(good) < MANY:
            return again
        return [math.log(self._references[run.place].gbs / (run.gbs or 1)) for run in good]

    def _change(self, measured: Sequence[float]) -> float:
        if not measured:
            return 0.0
        change, lower, spread = median(measured), median_low(measured), max(self._scatter.values())
        # Of two controls that differ, the faster one shows the fabric: faults and disturbances only slow down.
        change = lower if change - lower > max(SLOW, SPREADS * spread) / 2 else change
        error = spread * math.sqrt(2 / len(measured))  # each is the difference of two runs
        return change if abs(change) > max(LEAST, SURE * error) else 0.0

    def add(self, run: PairRun, change: float) -> None:
        ref = self._references.get(run.place)
        if run.gbs is None or ref is None:
            self._suspects |= run.nodes
            return
        speed = math.log(run.gbs) + change
        if math.log(ref.gbs) - speed > max(SLOW, SPREADS * ref.scale):
            self._suspects |= run.nodes
        else:
            self._speeds[run.nodes].append(speed)
