"""What explains the bad runs: causes are accepted one after the other, as long as the odds carry them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from gpuctl.nccl.isolate.likelihood import (
    failing_rather_than_slow,
    in_the_same_way,
    odds,
    odds_of_a_rival,
    runs_of,
    spoils,
)
from gpuctl.nccl.isolate.model import Cause, Fault, Kind, Policy
from gpuctl.nccl.isolate.noise import Noise, chances
from gpuctl.nccl.isolate.observations import Evidence, Observation

CAME_BACK = 3.0  # what was bad more than once is let go only at odds so many times worse
SEVERAL = 4  # bad nodes of one rack that are less likely than a bad rack
MILD = -math.log(1 - 0.15)  # the shortfall below which a cause has to be proved ten times better


@dataclass(frozen=True)
class Attribution:
    """`guilty`: accepted. `open`: bad runs that nothing explains, with the odds of everything each may come from.

    `chance`: bad runs that are held for nobody's fault, as everything they may come from was let go. `masked`: nodes
    that nothing is known of, as every run of theirs was spoilt by something guilty.
    """

    faults: tuple[Fault, ...]
    open: tuple[tuple[Observation, Mapping[Cause, float]], ...]
    chance: tuple[Observation, ...]
    masked: tuple[str, ...]
    noise: Noise


def attribute(evidence: Evidence, policy: Policy) -> Attribution:
    """Accept what is sure, let go what is not worth another look, and tell what stays open.

    How often chance makes a run slow is learnt from the runs that were let go, so this is done twice.
    """
    first = _explain(evidence, policy, _noise(evidence, ()))
    return _explain(evidence, policy, _noise(evidence, first.chance)) if first.chance else first


def _noise(evidence: Evidence, chance: Sequence[Observation]) -> Noise:
    before = Noise(evidence.scale, *chances(0, 0, 0), evidence.guessed)
    slow = sum(before.passing(seen.shortfall) for seen in chance if seen.shortfall is not None)
    failed = sum(bool(seen.failed) for seen in chance)
    return Noise(evidence.scale, *chances(len(evidence.pairs), slow, failed), evidence.guessed)


def _explain(evidence: Evidence, policy: Policy, noise: Noise) -> Attribution:
    faults = [_lost(node, evidence) for node in sorted(evidence.lost)]
    taken = frozenset(number for fault in faults for number in fault.runs)
    every = tuple(seen for seen in evidence.pairs if looks_bad(seen, noise, policy))
    case = Case(evidence, policy, noise, taken, every, {})
    while (best := case.best()) is not None:
        faults.append(case.fault(best))
        case = case.without(best)
    still = [seen for seen in case.bad if case.worth_another_look(seen)]
    kept = {seen.number for seen in still}
    chance = tuple(seen for seen in case.bad if seen.number not in kept)
    spoilt = dict.fromkeys(n for seen in evidence.pairs if seen.number in case.taken for n in seen.nodes)
    masked = tuple(node for node in spoilt if node not in evidence.lost and case.masked(node, faults))
    return Attribution(tuple(faults), tuple((seen, case.odds_of(seen)) for seen in still), chance, masked, noise)


@dataclass(frozen=True)
class Case:
    """The runs that no accepted cause explains (`taken` are the numbers of those that one does).

    `every`: all bad runs, taken or not. `known`: odds by the cause and the runs they rest on, kept from case to case.
    """

    evidence: Evidence
    policy: Policy
    noise: Noise
    taken: frozenset[int]
    every: tuple[Observation, ...]
    known: dict[tuple[Cause, tuple[int, ...]], float]

    @cached_property
    def bad(self) -> tuple[Observation, ...]:
        return tuple(seen for seen in self.every if seen.number not in self.taken)

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Those of the bad runs."""
        return frozenset(seen.number for seen in self.bad)

    @cached_property
    def causes(self) -> Mapping[int, tuple[Cause, ...]]:
        """What each bad run may come from, by its number."""
        return {seen.number: tuple(self._candidates(seen)) for seen in self.bad}

    def _candidates(self, seen: Observation) -> Iterable[Cause]:
        """Nodes that every pair has set apart explain their runs; else all that may."""
        apart = [Cause(Kind.NODE, (node,)) for node in seen.nodes if node in self.evidence.clusters.slow_nodes]
        return apart or (cause for cause in candidates(seen) if self._may_be(cause))

    def _may_be(self, cause: Cause) -> bool:
        """What a single rack shares is what all share; and what a small rack shares is not told from its nodes."""
        if cause.kind in (Kind.NODE, Kind.LINK):
            return True
        inside = self.evidence.rack_sizes[cause.names[0]]
        if cause.kind is Kind.UPLINK:
            return inside > 1
        return inside > SEVERAL and len(self.evidence.runs_by_rack) > 1

    @cached_property
    def odds(self) -> Mapping[Cause, float]:
        every = dict.fromkeys(cause for found in self.causes.values() for cause in found)
        return {cause: self._odds(cause, self.runs(cause)) for cause in every}

    def odds_of(self, seen: Observation) -> dict[Cause, float]:
        return {cause: self.odds[cause] for cause in self.causes[seen.number]}

    def runs(self, cause: Cause) -> list[Observation]:
        return [seen for seen in runs_of(cause, self.evidence) if seen.number not in self.taken]

    def without(self, cause: Cause) -> Case:
        """What is left to explain once this one is accepted."""
        taken = self.taken | {seen.number for seen in self.runs(cause)}
        return replace(self, taken=taken)

    def best(self) -> Cause | None:
        """The likeliest cause that is sure enough and that no other explanation comes near."""
        sure = [cause for cause, found in self.odds.items() if found >= self._enough(cause) and self._all_of(cause)]
        ordered = sorted(sure, key=lambda cause: (-self.odds[cause], cause.kind, cause.names))
        return next((cause for cause in ordered if all(self._beats(cause, r) for r in self._rivals(cause))), None)

    def _enough(self, cause: Cause) -> float:
        """The odds to accept a cause: the chance of a false alarm is shared out among all that could be accused.

        Nodes get the most of it, as they are what is mostly bad: four fifths among them all, a tenth each among all
        racks with their uplinks and among all paths that were run over. What is only a little slow gets a tenth of
        that: scatter is not quite as we take it to be, and small shortfalls show it most.
        """
        allowed = self.policy.false_alarm * (0.1 if self._mild(cause) else 1.0)
        if cause.kind is Kind.NODE:
            return math.log(len(self.evidence.fleet.nodes) / 0.8 / allowed)
        many = len(self.evidence.pairs) if cause.kind is Kind.LINK else 2 * len(self.evidence.runs_by_rack)
        return math.log(many / 0.1 / allowed)

    def _all_of(self, cause: Cause) -> bool:
        """Of a rack: whether its bad runs would take several bad nodes."""
        if cause.kind is not Kind.RACK:
            return True
        busy, count = set[str](), 0
        for seen in self.runs(cause):
            own = {node for node in seen.nodes if self.evidence.fleet.racks.get(node) == cause.names[0]}
            if seen.number in self.numbers and own.isdisjoint(busy):
                busy |= own
                count += 1
        return count >= SEVERAL

    def _mild(self, cause: Cause) -> bool:
        runs = self.runs(cause)
        return not any(seen.failed or (seen.shortfall or 0.0) >= MILD for seen in runs)

    def worth_another_look(self, seen: Observation) -> bool:
        """A bad run is looked into until every node of it ran well once, then while the odds stay up.

        Nothing speaks for a node that never did, however mild its bad runs are: one more tells.
        """
        if seen.wrong:
            return True
        left = [[run for run in self._telling(node) if run.number not in self.taken] for node in seen.nodes]
        bad = [[self._bad_as(seen, run) for run in runs] for runs in left]
        back = any(found.count(True) > 1 for found in bad)
        if max(self.odds_of(seen).values()) >= math.log(self.policy.let_go / (CAME_BACK if back else 1.0)):
            return True
        return any(all(found) for found in bad)

    def _bad_as(self, seen: Observation, run: Observation) -> bool:
        """Whether a run is one more of the same as a bad one: bad by itself, or at least half as slow."""
        least = max(self.policy.least_gap, 0.5 * (seen.shortfall or math.inf))
        return run.number in self.numbers or (run.shortfall is not None and run.shortfall >= least)

    def masked(self, node: str, faults: Sequence[Fault]) -> bool:
        """Whether nothing is left that would tell of a node that is not guilty itself."""
        for fault in faults:
            rack = self.evidence.fleet.racks.get(node) if fault.cause.kind is Kind.RACK else None
            if fault.cause.kind is not Kind.UPLINK and (node in fault.cause.names or rack in fault.cause.names):
                return False
        runs = self._telling(node)
        return bool(runs) and all(run.number in self.taken for run in runs)

    def fault(self, cause: Cause) -> Fault:
        """An accepted cause with the runs that it rests on."""
        runs = self.runs(cause)
        failing = failing_rather_than_slow(runs, self.noise, self.policy.least_gap)
        half = 0.5 * max((seen.shortfall for seen in runs if seen.shortfall is not None), default=0.0)
        slow = [seen for seen in runs if seen.shortfall is not None and seen.shortfall >= half]
        bad = [seen for seen in runs if seen.failed] if failing else slow
        slower = None if failing else 1 - math.exp(-median(seen.shortfall or 0.0 for seen in slow))
        numbers = tuple(seen.number for seen in runs)
        return Fault(cause, self.odds[cause], failing, slower, tuple(seen.number for seen in bad), numbers)

    def _odds(self, cause: Cause, runs: Sequence[Observation]) -> float:
        key = cause, tuple(seen.number for seen in runs)
        if key not in self.known:
            self.known[key] = odds(cause, runs, self.noise, self.policy.least_gap)
        return self.known[key]

    def _telling(self, node: str) -> list[Observation]:
        return [seen for seen in self.evidence.runs_by_node.get(node, ()) if seen.informative]

    def _rivals(self, cause: Cause) -> set[Cause]:
        shared = (self.causes.get(seen.number, ()) for seen in self.runs(cause))
        return {rival for found in shared for rival in found if rival != cause}

    def _beats(self, cause: Cause, rival: Cause) -> bool:
        """It explains the runs far better; or even with the rival at work, the other runs would still call for it."""
        # A node that comes and goes easily looks like its path to one that it met twice: one more run tells.
        far = math.log(self.policy.rival * (3 if (cause.kind, rival.kind) == (Kind.LINK, Kind.NODE) else 1))
        against = odds_of_a_rival(rival, self.runs(rival), self.noise, self.policy.least_gap)
        if self.odds[cause] - against >= far:
            return True
        runs = self.runs(cause)
        others = [seen for seen in runs if not spoils(rival, seen)]
        return in_the_same_way(runs, others, self.noise, self.policy.least_gap) >= far


def looks_bad(seen: Observation, noise: Noise, policy: Policy) -> bool:
    """Whether a run by itself is worth a second look."""
    if seen.failed:
        return True
    if seen.shortfall is None or seen.shortfall < max(policy.least_gap, 3 * noise.scale):
        return False
    if noise.guessed:  # a run or two in a small fleet cost less than a fault that hides in a guess
        return True
    alone = odds(Cause(Kind.NODE, seen.nodes[:1]), [seen], noise, policy.least_gap)
    return alone >= math.log(policy.look_again / 2)  # its odds are halved for being slow, not failing


def candidates(seen: Observation) -> Iterable[Cause]:
    """All that a bad pair run may come from."""
    for node in seen.nodes:
        yield Cause(Kind.NODE, (node,))
    yield Cause(Kind.LINK, tuple(sorted(seen.nodes)))
    for rack in sorted(seen.racks):
        yield Cause(Kind.RACK, (rack,))
        if seen.place == "across":
            yield Cause(Kind.UPLINK, (rack,))


def _lost(node: str, evidence: Evidence) -> Fault:
    runs = evidence.runs_by_node.get(node, ())
    bad, all_of_it = tuple(seen.number for seen in runs if seen.failed), tuple(seen.number for seen in runs)
    return Fault(Cause(Kind.NODE, (node,)), math.inf, failing=True, slower=None, bad=bad, runs=all_of_it, lost=True)
