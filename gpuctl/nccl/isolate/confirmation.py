"""The confirmation: everything that is not held for bad, together in one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.nccl.isolate.follow_up import spoilt
from gpuctl.nccl.isolate.model import Fault, Policy, Unresolved
from gpuctl.nccl.isolate.observations import Evidence, Observation

TRIES = 2  # a confirmation that is bad once may be chance
HINTS = 8  # more nodes than this that fell silent in a hang tell nothing about each of them


@dataclass(frozen=True)
class Confirmation:
    """The nodes left, the runs of exactly them, and the speed (GB/s) that they should reach together."""

    nodes: tuple[str, ...]
    runs: tuple[Observation, ...]
    wanted: float | None

    def bad(self, run: Observation) -> bool:
        return bool(run.failed or run.start_failure) or (
            self.wanted is not None and run.gbs is not None and run.gbs < self.wanted
        )

    @property
    def fine(self) -> bool:
        return any(not self.bad(run) for run in self.runs)

    @property
    def due(self) -> bool:
        """Whether it is still to be run: never yet, or badly only once."""
        return len(self.nodes) > 1 and not self.fine and len(self.runs) < TRIES


def rest(evidence: Evidence, faults: Iterable[Fault], unresolved: Iterable[Unresolved], policy: Policy) -> Confirmation:
    """What is left of a fleet without everything that is bad or in doubt."""
    out = {node for fault in faults for node in spoilt(fault.cause, evidence)}
    out |= {node for open_case in unresolved for number in open_case.runs for node in _nodes(evidence, number)}
    out |= {*evidence.untested, *evidence.excluded}
    left = tuple(node for node in evidence.alive if node not in out)
    whole = frozenset(left)
    runs = tuple(s for s in evidence.runs if len(s.nodes) == len(left) and not s.rail and whole == set(s.nodes))
    return Confirmation(left, runs, wanted(evidence, policy))


def wanted(evidence: Evidence, policy: Policy) -> float | None:
    """A ring is as fast as its slowest step: that of pairs, across racks where it leaves them; GB/s.

    Long rings reach less than pairs do, so only a share of it is asked for.
    """
    slowest = min((ref.gbs for ref in evidence.references.values()), default=None)
    return None if slowest is None else policy.rest * slowest


def unexplained(evidence: Evidence, policy: Policy) -> list[Observation]:
    """Bad runs of groups that were tried often enough and never ran well: something in them was not found yet."""
    least = wanted(evidence, policy)
    groups: dict[frozenset[str], list[Observation]] = {}
    for seen in evidence.runs:
        if len(seen.nodes) > 2 and not seen.rail and not seen.start_failure:
            groups.setdefault(frozenset(seen.nodes), []).append(seen)
    bad = {
        group: [s for s in runs if s.failed or (least is not None and s.gbs is not None and s.gbs < least)]
        for group, runs in groups.items()
    }
    return [
        seen
        for group, runs in groups.items()
        if len(bad[group]) == len(runs) >= TRIES or any(run.wrong for run in runs)
        for seen in runs
    ]


def silent(evidence: Evidence, runs: Sequence[Observation]) -> list[str]:
    """Nodes whose ranks were gone when a group hung, and that were in no pair since: the first to look at."""
    found: dict[str, None] = {}
    for seen in runs:
        gone = [node for node, how in evidence.waiting.get(seen.number, {}).items() if how == "gone"]
        if len(gone) <= HINTS:
            later = {node for pair in evidence.pairs if pair.number > seen.number for node in pair.nodes}
            found |= dict.fromkeys(
                node for node in gone if node in evidence.alive and node not in {*later, *evidence.excluded}
            )
    return list(found)


def _nodes(evidence: Evidence, number: int) -> tuple[str, ...]:
    return next(seen.nodes for seen in evidence.runs if seen.number == number)
