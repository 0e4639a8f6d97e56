"""The confirmation: one run of all nodes that are not suspected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.nccl.isolate.follow_up import spoilt
from gpuctl.nccl.isolate.model import Fault, Policy, Unresolved
from gpuctl.nccl.isolate.observations import Evidence, Observation

TRIES = 2  # a single bad confirmation may be chance
REPEATS = 4  # so often nodes that are fine or slow together are run: what comes and goes shows in some of the runs
STEADY, SPREADS = 0.05, 8  # runs of the same nodes differ by less than this share, or so many spreads of pairs
HINTS = 8  # if more nodes than this fell silent in a hang, that says nothing about each of them


@dataclass(frozen=True)
class Confirmation:
    """The nodes left, the runs of exactly these, and the speed (GB/s) that they should reach together."""

    nodes: tuple[str, ...]
    runs: tuple[Observation, ...]
    expected_gbs: float | None
    scatter: float  # share by which runs of the same nodes may differ

    def bad(self, run: Observation) -> bool:
        return bool(run.start_failure) or _is_bad(run, self.expected_gbs)

    @property
    def fine(self) -> bool:
        return any(not self.bad(run) for run in self.runs)

    @property
    def due(self) -> bool:
        """True if it still has to be run: it was not, failed only once, or was always fine or slow, but not often."""
        if len(self.nodes) < 2:
            return False
        if len(self.nodes) == 2:  # a pair, which has runs enough
            return not self.fine and len(self.runs) < TRIES
        alike = len({self.bad(run) for run in self.runs}) < 2 and not self.unsteady
        if any(run.failed or run.start_failure for run in self.runs):
            return not self.fine and len(self.runs) < TRIES
        return alike and len(self.runs) < REPEATS

    @property
    def unsteady(self) -> bool:
        """True if its runs differ by more than the noise."""
        return _differ(self.runs, self.scatter)


def confirmation(
    evidence: Evidence, faults: Iterable[Fault], unresolved: Iterable[Unresolved], policy: Policy
) -> Confirmation:
    """The confirmation of the nodes that are neither bad nor in doubt."""
    out = {node for fault in faults for node in spoilt(fault.cause, evidence)}
    out |= {node for open_case in unresolved for number in open_case.runs for node in _nodes(evidence, number)}
    out |= {*evidence.untested, *evidence.excluded}
    left = tuple(node for node in evidence.alive if node not in out)
    whole = frozenset(left)
    runs = tuple(s for s in evidence.runs if len(s.nodes) == len(left) and not s.rail and whole == set(s.nodes))
    return Confirmation(left, runs, expected_gbs(evidence, policy), _scatter(evidence))


def _scatter(evidence: Evidence) -> float:
    return STEADY if evidence.guessed else max(STEADY, SPREADS * evidence.scale)


def _differ(runs: Sequence[Observation], scatter: float) -> bool:
    speeds = [run.gbs for run in runs if run.gbs is not None]
    return len(speeds) > 1 and min(speeds) < (1 - scatter) * max(speeds)


def expected_gbs(evidence: Evidence, policy: Policy) -> float | None:
    """The bandwidth (GB/s) that a ring should reach; None if no pair ran well.

    A ring is as fast as its slowest step, which is that of the slower pairs. Long rings reach less than pairs, so only
    the policy's share of it is expected.
    """
    slowest = min((ref.gbs for ref in evidence.references.values()), default=None)
    return None if slowest is None else policy.rest * slowest


def unexplained(evidence: Evidence, policy: Policy) -> list[Observation]:
    """Runs of groups that were tried TRIES times and never ran well: they contain a fault that is not found yet."""
    least = expected_gbs(evidence, policy)
    suspicious = (runs for runs in _groups(evidence) if _never_well(runs, least) or any(run.wrong for run in runs))
    return [run for runs in suspicious for run in runs]


def came_back_fine(evidence: Evidence, faults: Iterable[Fault], policy: Policy) -> bool:
    """True if a group was bad, or slower, one time and not another: chance, or an unknown fault that comes and goes."""
    least, bad = expected_gbs(evidence, policy), {name for fault in faults for name in fault.cause.names}
    groups = [runs for runs in _groups(evidence) if bad.isdisjoint(runs[0].nodes)]
    scatter = _scatter(evidence)
    return any(len({_is_bad(run, least) for run in runs}) > 1 or _differ(runs, scatter) for runs in groups)


def bad_groups(evidence: Evidence, policy: Policy) -> list[frozenset[str]]:
    """The nodes of each group that never ran well, or was bad or slower one time and not another."""
    least, scatter = expected_gbs(evidence, policy), _scatter(evidence)
    return [
        frozenset(runs[0].nodes)
        for runs in _groups(evidence)
        if _never_well(runs, least)
        or any(run.wrong for run in runs)
        or len({_is_bad(run, least) for run in runs}) > 1
        or _differ(runs, scatter)
    ]


def _groups(evidence: Evidence) -> list[list[Observation]]:
    """The runs of more than two nodes that started, by their nodes."""
    groups: dict[frozenset[str], list[Observation]] = {}
    for run in evidence.runs:
        if len(run.nodes) > 2 and not run.rail and not run.start_failure:
            groups.setdefault(frozenset(run.nodes), []).append(run)
    return list(groups.values())


def _is_bad(run: Observation, least: float | None) -> bool:
    return bool(run.failed) or _is_below(run, least)


def _never_well(runs: Sequence[Observation], least: float | None) -> bool:
    return len(runs) >= TRIES and all(_is_bad(run, least) for run in runs)


def _is_below(run: Observation, least: float | None) -> bool:
    return least is not None and run.gbs is not None and run.gbs < least


def silent(evidence: Evidence, runs: Sequence[Observation]) -> list[str]:
    """Nodes whose ranks were gone when a group hung, and that were in no pair since: the first suspects."""
    nodes: dict[str, None] = {}
    for run in runs:
        gone = [node for node, how in evidence.waiting.get(run.number, {}).items() if how == "gone"]
        if len(gone) <= HINTS:
            later = {node for pair in evidence.pairs if pair.number > run.number for node in pair.nodes}
            nodes |= dict.fromkeys(
                node for node in gone if node in evidence.alive and node not in {*later, *evidence.excluded}
            )
    return list(nodes)


def _nodes(evidence: Evidence, number: int) -> tuple[str, ...]:
    return next(run.nodes for run in evidence.runs if run.number == number)
