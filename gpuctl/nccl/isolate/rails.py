"""One adapter at a time: which of a bad node's adapters it is, or that it is not one adapter."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from gpuctl.nccl.isolate.follow_up import KnownGoodPool
from gpuctl.nccl.isolate.model import Fault, Kind, Policy
from gpuctl.nccl.isolate.noise import Reference, reference
from gpuctl.nccl.isolate.observations import Evidence, Observation

Rail = tuple[tuple[str, ...], str]  # the pair, and the adapter that it is kept to


@dataclass(frozen=True)
class Adapters:
    """What the runs of single adapters of a node came to: name -> its bad and its other runs."""

    bad: dict[str, list[Observation]]
    fine: dict[str, list[Observation]]


def due(evidence: Evidence, faults: Sequence[Fault], good: KnownGoodPool, policy: Policy) -> list[Rail]:
    """The next runs on one adapter: a bad node with a good one, and where enough are left two good ones beside it.

    A node that hangs is left alone: every run of it would take as long as a hang may take.
    """
    found: list[Rail] = []
    names = nodes_of(faults)
    for fault in faults:
        if fault.cause.names[0] in evidence.excluded:
            continue
        name = _next(evidence, fault, names, policy)
        if name:
            found += [((fault.cause.names[0], partner), name) for partner in _partner(fault, good)]
        elif not name and _conflicting(evidence, fault, names, policy):
            found += [((fault.cause.names[0], other), "") for other in _partner(fault, good)]
    beside = found[0][1] if found else ""
    if beside and len(good) > 1:
        one = good.take(evidence.fleet.nodes[0], lambda _: True)
        other = good.take(one, good.near(one)) if one else None
        if one and other:
            found.append(((one, other), beside))
    return found


def _next(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> str:
    """The adapter to run next: each once, then a single bad one again, so that chance does not name it."""
    if not looked_into(evidence, fault):
        return ""
    node = fault.cause.names[0]
    done = [run.rail for run in _runs(evidence, node)]
    left = [name for name in evidence.rails if name not in done]
    if left:
        return left[0]
    bad = adapters(evidence, fault, faults, policy).bad
    return next((name for name in bad if len(bad) == 1 and done.count(name) == 1), "")


def _partner(fault: Fault, good: KnownGoodPool) -> list[str]:
    lent = good.take(fault.cause.names[0], good.near(fault.cause.names[0]))
    return [lent] if lent else []


def _conflicting(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> bool:
    """Whether each adapter by itself was fine, and the node was not run over all of them since."""
    runs = _runs(evidence, fault.cause.names[0])
    if not looked_into(evidence, fault) or not runs or adapters(evidence, fault, faults, policy).bad:
        return False
    last = max(run.number for run in runs)
    return all(run.number < last for run in evidence.launches_by_node[fault.cause.names[0]])


def looked_into(evidence: Evidence, fault: Fault) -> bool:
    """Whether its adapters are run one by one: for a node that answers, has several, and does not hang."""
    hangs = {run.failed for run in evidence.pairs if run.number in fault.bad} & {"hung", "killed"}
    return len(evidence.rails) > 1 and fault.cause.kind is Kind.NODE and not fault.lost and not hangs


def nodes_of(faults: Sequence[Fault]) -> frozenset[str]:
    """The guilty nodes: runs with them are no measure for others."""
    return frozenset(fault.cause.names[0] for fault in faults if fault.cause.kind is Kind.NODE)


def _runs(evidence: Evidence, node: str) -> list[Observation]:
    return [run for run in evidence.runs if run.rail and node in run.nodes]


def adapters(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> Adapters:
    """Sort the runs of a node's adapters into bad and fine.

    An adapter is held against those of good pairs, which has every adapter of the fleet alike; without any, against
    the faster half of the node's own.
    """
    node = fault.cause.names[0]
    runs = _runs(evidence, node)
    beside = [s.gbs for s in evidence.runs if s.rail and s.gbs is not None and faults.isdisjoint(s.nodes)]
    ref = reference(beside if len(beside) > 1 else [run.gbs for run in runs if run.gbs is not None])
    found = Adapters({}, {})
    for run in runs:
        if run.start_failure:
            continue
        side = found.bad if _bad(run, ref, fault, policy) else found.fine
        side.setdefault(run.rail, []).append(run)
    return found


def _bad(run: Observation, ref: Reference | None, fault: Fault, policy: Policy) -> bool:
    if run.failed:
        return True
    if ref is None or run.gbs is None:
        return False
    whole = -math.log(1 - fault.slower) if fault.slower else 0.0
    return math.log(ref.gbs / run.gbs) > max(policy.least_gap, 4 * ref.scale, whole / 2)


def judged(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> Fault:
    """The guilty node with its adapter, where the runs name one."""
    if not looked_into(evidence, fault):
        return fault
    found = adapters(evidence, fault, faults, policy)
    names = sorted({*found.bad, *found.fine})
    if not names:
        return fault
    fault = replace(fault, bad_over_one=tuple(run.number for runs in found.bad.values() for run in runs))
    if len(found.bad) == 1:
        (name, runs) = next(iter(found.bad.items()))
        if len(runs) > 1 and name not in found.fine:
            return replace(fault, rail=name, rail_says=f"{len(runs)} runs over {name} alone were bad, none over others")
        says = f"{name} alone was bad in {len(runs)} of {len(runs) + len(found.fine.get(name, []))} runs: not sure"
        return replace(fault, rail_says=says)
    if set(found.bad) >= set(names):
        return replace(fault, rail_says="bad over every one of its adapters: not an adapter")
    some = ", ".join(sorted(found.bad))
    fine = f"each of the {len(names)} adapters that were run by themselves was fine"
    return replace(fault, rail_says=f"several of its adapters were bad: {some}" if some else fine)
