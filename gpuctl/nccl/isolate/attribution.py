"""Attribute the bad runs to causes. Causes are accepted one after the other, as long as the odds support them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import median

from gpuctl.nccl.isolate.likelihood import (
    failing_rather_than_slow,
    odds,
    odds_of_a_rival,
    odds_of_same_model,
    runs_of,
    spoils,
)
from gpuctl.nccl.isolate.model import Cause, Fault, Kind, Policy
from gpuctl.nccl.isolate.noise import Noise, chances
from gpuctl.nccl.isolate.observations import FEW_NODES, Evidence, Observation, ordered

SHOWS_ITS_SPREAD = 48  # nodes from which the runs of the first round alone show how much healthy runs scatter
CAME_BACK = 3.0  # a node that was bad more than once is dropped only at odds so many times worse
SEVERAL = 4  # this many bad nodes in one rack are less likely than a bad rack
CLEARLY = 12.0  # spreads from which a slow run is no usual scatter, but a disturbance or an intermittent fault
PARTNERS = 3  # partners with which a node is bad while others come and go
MANY_BAD = 1 / 3  # share of bad pair runs from which a single bad run of a node says little about it
FEWEST_OVER_UPLINK = 3  # bad runs over the uplink of a small rack, because two nodes that come and go explain two
MILD = -math.log(1 - 0.15)  # shortfall below which a cause needs ten times better odds


@dataclass(frozen=True)
class Attribution:
    """`faults`: accepted causes. `open`: bad runs that no fault explains, each with the odds of its possible causes.

    `chance`: bad runs put down to chance, as all of their possible causes were dropped. `masked`: nodes about which
    nothing is known, because a fault spoiled every run of theirs.
    """

    faults: tuple[Fault, ...]
    open: tuple[tuple[Observation, Mapping[Cause, float]], ...]
    chance: tuple[Observation, ...]
    masked: tuple[str, ...]
    noise: Noise


def attribute(evidence: Evidence, policy: Policy, bad_groups: Sequence[frozenset[str]] = ()) -> Attribution:
    """Accept the causes that are proved, drop those not worth another run, and keep the rest open.

    The frequency of slow runs by chance is learnt from the dropped runs, so this is done twice. `bad_groups`: more than
    two nodes each that ran badly together. A node outside one of them is not all that is bad: a partner may be what
    comes and goes, so its runs without any one partner have to prove it, too.
    """
    groups = tuple(bad_groups)
    first = _explain(evidence, policy, _noise(evidence, ()), groups)
    return _explain(evidence, policy, _noise(evidence, first.chance), groups) if first.chance else first


def _noise(evidence: Evidence, chance: Sequence[Observation]) -> Noise:
    before = Noise(evidence.scale, *chances(0, 0, 0), evidence.guessed)
    slow = sum(before.passing(run.shortfall) for run in chance if run.shortfall is not None)
    failed = sum(bool(run.failed) for run in chance)
    return Noise(evidence.scale, *chances(len(evidence.pairs), slow, failed), evidence.guessed)


def _explain(evidence: Evidence, policy: Policy, noise: Noise, bad_groups: tuple[frozenset[str], ...]) -> Attribution:
    faults = [_lost(node, evidence) for node in sorted(evidence.lost)]
    taken = frozenset(number for fault in faults for number in fault.runs)
    every = tuple(run for run in evidence.pairs if looks_bad(run, noise, policy))
    case = Case(evidence, policy, noise, taken, every, tuple(fault.cause for fault in faults), bad_groups)
    while (best := case.best()) is not None:
        faults.append(case.fault(best))
        case = case.without(best)
    still = [run for run in case.bad if case.needs_retest(run)]
    kept = {run.number for run in still}
    chance = tuple(run for run in case.bad if run.number not in kept)
    spoilt = dict.fromkeys(n for run in evidence.pairs if run.number in case.taken for n in run.nodes)
    masked = tuple(node for node in spoilt if node not in evidence.lost and case.masked(node, faults))
    return Attribution(tuple(faults), tuple((run, case.odds_of(run)) for run in still), chance, masked, noise)


@dataclass(frozen=True)
class Case:
    """The runs that no accepted cause explains yet; `taken` are the numbers of those that one does.

    `every`: all bad runs, taken or not. `accepted`: the causes so far. `bad_groups`: see attribute. `before`: the case
    from which the last of them was taken, to leave this one.
    """

    evidence: Evidence
    policy: Policy
    noise: Noise
    taken: frozenset[int]
    every: tuple[Observation, ...]
    accepted: tuple[Cause, ...]
    bad_groups: tuple[frozenset[str], ...] = ()
    before: Case | None = None

    @cached_property
    def bad(self) -> tuple[Observation, ...]:
        return tuple(run for run in self.every if run.number not in self.taken)

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The numbers of the bad runs."""
        return frozenset(run.number for run in self.bad)

    @cached_property
    def _ever_bad(self) -> frozenset[int]:
        """The numbers of all bad runs, explained or not."""
        return frozenset(run.number for run in self.every)

    @cached_property
    def _unsure_places(self) -> frozenset[str]:
        """Places (within racks, across) in which some pairs are faster than the usual one."""
        return frozenset(self.evidence.place(pair) for pair in self.evidence.faster_pairs)

    @cached_property
    def causes(self) -> Mapping[int, tuple[Cause, ...]]:
        """The possible causes of each bad run, by its number."""
        return {run.number: tuple(self._candidates(run)) for run in self.bad}

    def _candidates(self, run: Observation) -> Iterable[Cause]:
        """The slow nodes, once all pairs have shown which these are; else every cause that is possible."""
        slow = [Cause(Kind.NODE, (node,)) for node in run.nodes if node in self.evidence.clusters.slow_nodes]
        return slow or (cause for cause in candidates(run) if self._may_be(cause))

    def _may_be(self, cause: Cause) -> bool:
        """False for a shared part that the runs cannot show, and for a rack that was fine in any run.

        The only rack, and one of few nodes, looks like its nodes. While it is not known which speed is the
        right one, no rack or uplink is in question, because these are compared with different references.
        """
        if cause.kind in (Kind.NODE, Kind.LINK):
            return True
        inside = self.evidence.rack_sizes[cause.names[0]]
        if self.evidence.faster_pairs or inside < 2:
            return False
        if cause.kind is Kind.UPLINK:
            return True
        return inside > SEVERAL and len(self.evidence.runs_by_rack) > 1 and not self._is_fine(cause.names[0])

    def _is_fine(self, rack: str) -> bool:
        """`_ran_well`, once for each rack."""
        if rack not in self._fine_racks:
            self._fine_racks[rack] = self._ran_well(rack)
        return self._fine_racks[rack]

    @cached_property
    def _fine_racks(self) -> dict[str, bool]:
        return {}

    def _ran_well(self, rack: str) -> bool:
        """True if a run of a node in the rack was fine: nearer to the usual speed than to that of the bad ones."""
        runs = [run for run in self.evidence.runs_by_rack[rack] if run.informative and run.number not in self.taken]
        slow = [run.shortfall for run in runs if run.number in self.numbers and run.shortfall is not None]
        least = 0.5 * median(slow) if slow else math.inf
        return any(not run.failed and (run.shortfall or 0.0) < least for run in runs)

    @cached_property
    def odds(self) -> Mapping[Cause, float]:
        every = dict.fromkeys(cause for causes in self.causes.values() for cause in causes)
        return {cause: self._odds(cause) for cause in every}

    def _odds(self, cause: Cause) -> float:
        """The odds of a cause; those of the case before while the same runs and noise would show it."""
        runs, noise, before = self.runs(cause), self.noise_for(cause), self.before
        as_before = before is not None and cause in before.odds and len(before.runs(cause)) == len(runs)
        if before is not None and as_before and before.noise_for(cause) == noise:
            return before.odds[cause]
        return odds(cause, runs, noise, self.policy.least_gap)

    def noise_for(self, cause: Cause) -> Noise:
        """The noise by which a cause is judged: no less than the spread of repeated runs.

        Those that it can spoil, or that an accepted cause spoils, have no part in it. In fleets that are not large, a
        handful of runs, or controls that each round is compared with, show less spread than there is. Among few nodes a
        path stays a rival of its nodes by the lesser noise.
        """
        many = len(self.evidence.fleet.nodes)
        if many > SHOWS_ITS_SPREAD or (many <= FEW_NODES and cause.kind is not Kind.NODE):
            return self.noise
        bad = (cause, *self.accepted)
        shown = self.evidence.repeat_spread(lambda run: any(spoils(one, run) for one in bad))
        return self.noise if shown <= self.noise.scale else replace(self.noise, scale=shown)

    def odds_of(self, run: Observation) -> dict[Cause, float]:
        return {cause: self.odds[cause] for cause in self.causes[run.number]}

    @cached_property
    def _runs(self) -> dict[Cause, list[Observation]]:
        return {}

    def runs(self, cause: Cause) -> list[Observation]:
        """The runs that would show the cause, without those that an accepted one explains."""
        if cause not in self._runs:
            runs = runs_of(cause, self.evidence) if self.before is None else self.before.runs(cause)
            self._runs[cause] = [run for run in runs if run.number not in self.taken]
        return self._runs[cause]

    def without(self, cause: Cause) -> Case:
        """The case that remains once this cause is accepted."""
        taken = self.taken | {run.number for run in self.runs(cause)}
        return replace(self, taken=taken, accepted=(*self.accepted, cause), before=self)

    def best(self) -> Cause | None:
        """The likeliest cause with sufficient odds that beats every rival; None without one."""
        proved = filter(self.is_proved, sorted(self.odds, key=lambda one: (-self.odds[one], one.kind, one.names)))
        first = next(proved, None)
        # In larger fleets a node has enough partners of its own.
        if (
            first is None
            or len(self.evidence.fleet.nodes) > FEW_NODES
            or not any(run.failed for run in self.runs(first))
        ):
            return first
        every = [first, *proved]
        return next((cause for cause in every if not self._is_borrowed(cause, every)), first)

    def is_proved(self, cause: Cause) -> bool:
        """True if the odds of a cause suffice and it beats every rival."""
        sufficient = cause in self.odds and self.odds[cause] >= self._enough(cause) and self._all_of(cause)
        sufficient = sufficient and self._without_any_partner(cause)
        return sufficient and all(self._beats(cause, rival) for rival in self._rivals(cause))

    def _without_any_partner(self, cause: Cause) -> bool:
        """False if a partner may be what comes and goes, and the runs of a node do not suffice without any one of them.

        Two such partners make a healthy node look bad in some of its runs, so it has to be bad with PARTNERS of them.
        """
        if cause.kind is not Kind.NODE or not self._is_something_else_bad(cause):
            return True
        runs, noise = self.runs(cause), self.noise_for(cause)
        partners = {name for run in runs if run.number in self.numbers for name in run.nodes} - set(cause.names)
        left = ([run for run in runs if partner not in run.nodes] for partner in partners)
        enough = self._enough(cause)
        return len(partners) >= PARTNERS and all(
            odds(cause, rest, noise, self.policy.least_gap) >= enough for rest in left
        )

    def _is_something_else_bad(self, cause: Cause) -> bool:
        """True if bad groups are without the node, or it fails at times and there are bad runs without it."""
        if any(cause.names[0] not in nodes for nodes in self.bad_groups):
            return True
        failed = [bool(run.failed) for run in self.runs(cause)]
        return any(failed) and not all(failed) and any(not spoils(cause, run) for run in self.bad)

    def _is_borrowed(self, cause: Cause, proved: Sequence[Cause]) -> bool:
        """True if it is proved only by runs that another cause explains, which is proved without this one.

        The partner of a node that crashes, which also ran with one that prints wrong values, was bad in most of its
        runs, and more often than either.
        """
        failed = [run for run in self.runs(cause) if run.failed]
        shared = [other for other in proved if other != cause and any(spoils(other, run) for run in failed)]
        return any(
            not self.without(other).is_proved(cause) and self.without(cause).is_proved(other) for other in shared
        )

    def _enough(self, cause: Cause) -> float:
        """The odds required to accept a cause: the allowed chance of a false alarm is divided among all candidates.

        Nodes get most of it, as they are the most frequent fault: all nodes together four fifths, all racks and uplinks
        one tenth, all tested paths one tenth. A mild cause gets a tenth of its share: real scatter differs from our
        model, most of all at small shortfalls.
        """
        allowed = self.policy.false_alarm * (0.1 if self._mild(cause) else 1.0)
        if cause.kind is Kind.NODE:
            return math.log(len(self.evidence.fleet.nodes) / 0.8 / allowed)
        many = len(self.evidence.pairs) if cause.kind is Kind.LINK else 2 * len(self.evidence.runs_by_rack)
        return math.log(many / 0.1 / allowed)

    def _all_of(self, cause: Cause) -> bool:
        """For a shared part: true if bad nodes explain its bad runs only when unlikely many of them are bad."""
        if cause.kind is Kind.RACK:
            return self._all_of_rack(cause.names[0])
        if cause.kind is Kind.UPLINK:
            return self._over_uplink(cause)
        if cause.kind is Kind.LINK:
            return not self.many_bad or all(self._ran_well_elsewhere(node, cause) for node in cause.names)
        return not self.many_bad or self._with_cleared(cause.names[0])

    @cached_property
    def many_bad(self) -> bool:
        """True if enough pairs are bad that a partner is bad as easily as the node in question."""
        return len(self.every) > MANY_BAD * len(self.evidence.pairs)

    def _with_cleared(self, node: str) -> bool:
        """True if it was bad with at least two nodes that ran well with others."""
        cause = Cause(Kind.NODE, (node,))
        bad = [run for run in self.runs(cause) if run.number in self.numbers]
        partners = {other for run in bad for other in run.nodes if other != node}
        return sum(self._ran_well_elsewhere(other, cause) for other in partners) > 1

    def _all_of_rack(self, rack: str) -> bool:
        """True if each of its nodes was bad with a node of another rack, and at least SEVERAL were.

        Several bad nodes in a rack look like a bad rack until its good nodes meet others.
        """
        outside = set[str]()
        for run in self.bad:
            inside = [node for node in run.nodes if self.evidence.fleet.racks.get(node) == rack]
            outside |= set(inside) if len(inside) == 1 else set()
        every = {node for node in self.evidence.alive if self.evidence.fleet.racks.get(node) == rack}
        return len(outside) >= SEVERAL and every <= outside | self.evidence.excluded

    def _over_uplink(self, cause: Cause) -> bool:
        """True if a run over the uplink was bad though both of its nodes ran well elsewhere.

        If many pairs are bad, or values were wrong, no run over it may be fine, either: bad nodes look like an
        intermittent uplink, and wrong values weigh more than any number of fine runs.
        """
        heavy = self.many_bad or any(run.wrong for run in self.runs(cause))
        if heavy and any(run.number not in self.numbers for run in self.runs(cause)):
            return False
        bad = [run for run in self.runs(cause) if run.number in self.numbers]
        if self.evidence.rack_sizes[cause.names[0]] <= SEVERAL and len(bad) < FEWEST_OVER_UPLINK:
            return False
        return any(all(self._ran_well_elsewhere(node, cause) for node in run.nodes) for run in bad)

    def _ran_well_elsewhere(self, node: str, cause: Cause) -> bool:
        """True if a run that the cause does not spoil was fine; a bad one that an accepted cause explains was not."""
        runs = self.evidence.runs_by_node.get(node, ())
        return any(self._was_fine(run) and not spoils(cause, run) for run in runs)

    def _was_fine(self, run: Observation) -> bool:
        """True for a run as fast as healthy ones; where pairs have two speeds, and no majority, only the faster are."""
        if run.gbs is None or run.number in self._ever_bad:
            return False
        return run.place not in self._unsure_places or ordered(run.nodes) in self.evidence.faster_pairs

    def _mild(self, cause: Cause) -> bool:
        runs = self.runs(cause)
        return not any(run.failed or (run.shortfall or 0.0) >= MILD for run in runs)

    def needs_retest(self, suspect: Observation) -> bool:
        """True while a node of a bad run has not run well yet, afterwards while the odds stay high.

        However mild its bad runs are, nothing speaks for a node that never ran well: one more run will tell.
        """
        if suspect.wrong:
            return True
        left = [[run for run in self._informative(node) if run.number not in self.taken] for node in suspect.nodes]
        bad = [[self._is_as_bad(suspect, run) for run in runs] for runs in left]
        repeated = any(of_node.count(True) > 1 for of_node in bad)
        clear = suspect.failed or (suspect.shortfall or 0.0) >= CLEARLY * self.noise.scale
        let_go = self.policy.let_go if clear else self.policy.let_go_mild
        if max(self.odds_of(suspect).values()) >= math.log(let_go / (CAME_BACK if repeated else 1.0)):
            return True
        return any(all(of_node) for of_node in bad)

    def _is_as_bad(self, suspect: Observation, run: Observation) -> bool:
        """True if a run repeats a suspect one: bad by itself, or at least half as slow."""
        least = max(self.policy.least_gap, 0.5 * (suspect.shortfall or math.inf))
        return run.number in self.numbers or (run.shortfall is not None and run.shortfall >= least)

    def masked(self, node: str, faults: Sequence[Fault]) -> bool:
        """True if no run is left that says anything about this node, and the node is not a fault itself."""
        for fault in faults:
            rack = self.evidence.fleet.racks.get(node) if fault.cause.kind is Kind.RACK else None
            if fault.cause.kind is not Kind.UPLINK and (node in fault.cause.names or rack in fault.cause.names):
                return False
        runs = self._informative(node)
        return bool(runs) and all(run.number in self.taken for run in runs)

    def fault(self, cause: Cause) -> Fault:
        """The fault of an accepted cause, with its runs."""
        runs = self.runs(cause)
        failing = failing_rather_than_slow(runs, self.noise, self.policy.least_gap)
        half = 0.5 * max((run.shortfall for run in runs if run.shortfall is not None), default=0.0)
        slow = [run for run in runs if run.shortfall is not None and run.shortfall >= half]
        bad = [run for run in runs if run.failed] if failing else slow
        slower = None if failing else 1 - math.exp(-median(run.shortfall or 0.0 for run in slow))
        numbers = tuple(run.number for run in runs)
        return Fault(cause, self.odds[cause], failing, slower, tuple(run.number for run in bad), numbers)

    def _informative(self, node: str) -> list[Observation]:
        return [run for run in self.evidence.runs_by_node.get(node, ()) if run.informative]

    def _doubt(self, cause: Cause, rival: Cause) -> float:
        """How many times better a cause must be than usual: a node that comes and goes looks like one of its paths.

        Of few nodes it meets the same partner more often.
        """
        if (cause.kind, rival.kind) != (Kind.LINK, Kind.NODE):
            return 1.0
        return 1000.0 if len(self.evidence.fleet.nodes) <= FEW_NODES else 100.0

    def _rivals(self, cause: Cause) -> set[Cause]:
        shared = (self.causes.get(run.number, ()) for run in self.runs(cause))
        return {rival for causes in shared for rival in causes if rival != cause}

    def _beats(self, cause: Cause, rival: Cause) -> bool:
        """True if the cause explains the runs far better, or is still needed for the runs that the rival leaves."""
        far = math.log(self.policy.rival * self._doubt(cause, rival))
        against = odds_of_a_rival(rival, self.runs(rival), self.noise, self.policy.least_gap)
        if self.odds[cause] - against >= far:
            return True
        runs = self.runs(cause)
        others = [run for run in runs if not spoils(rival, run)]
        return odds_of_same_model(runs, others, self.noise, self.policy.least_gap) >= far


def looks_bad(run: Observation, noise: Noise, policy: Policy) -> bool:
    """True if a run by itself is worth a second look."""
    if run.failed:
        return True
    if run.shortfall is None or run.shortfall < max(policy.least_gap, 3 * noise.scale):
        return False
    if noise.guessed:  # in a small fleet a few runs cost less than a fault hidden by a guessed spread
        return True
    alone = odds(Cause(Kind.NODE, run.nodes[:1]), [run], noise, policy.least_gap)
    return alone >= math.log(policy.look_again / 2)  # its odds are halved for being slow, not failing


def candidates(run: Observation) -> tuple[Cause, ...]:
    """Every possible cause of a bad pair run."""
    return _causes_of(run.nodes, run.racks, run.place == "across")


@lru_cache(maxsize=1 << 14)
def _causes_of(nodes: tuple[str, ...], racks: frozenset[str], across: bool) -> tuple[Cause, ...]:
    causes = [Cause(Kind.NODE, (node,)) for node in nodes]
    causes.append(Cause(Kind.LINK, tuple(sorted(nodes))))
    for rack in sorted(racks):
        causes += [Cause(kind, (rack,)) for kind in ((Kind.RACK, Kind.UPLINK) if across else (Kind.RACK,))]
    return tuple(causes)


def _lost(node: str, evidence: Evidence) -> Fault:
    runs = evidence.runs_by_node.get(node, ())
    bad, every = tuple(run.number for run in runs if run.failed), tuple(run.number for run in runs)
    return Fault(Cause(Kind.NODE, (node,)), math.inf, failing=True, slower=None, bad=bad, runs=every, lost=True)
