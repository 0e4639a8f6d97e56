"""Runs over one adapter at a time: they show which adapter of a bad node is bad, or that it is not a single one."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from gpuctl.nccl.isolate.follow_up import KnownGoodPool
from gpuctl.nccl.isolate.model import Fault, Kind, Policy
from gpuctl.nccl.isolate.noise import Reference, reference
from gpuctl.nccl.isolate.observations import Evidence, Observation

Rail = tuple[tuple[str, ...], str]  # a pair, and the only adapter that it uses


@dataclass(frozen=True)
class Adapters:
    """The runs over single adapters of a node: adapter -> its bad runs, and adapter -> its other runs."""

    bad: dict[str, list[Observation]]
    fine: dict[str, list[Observation]]


def due(evidence: Evidence, faults: Sequence[Fault], good: KnownGoodPool, policy: Policy) -> list[Rail]:
    """The next runs over one adapter: a bad node with a good one and, for comparison, two good ones if enough are left.

    A node that hangs is left out: every run of it would last until the time limit.
    """
    pairs: list[Rail] = []
    names = nodes_of(faults)
    for fault in faults:
        if fault.cause.names[0] in evidence.excluded:
            continue
        name = _next(evidence, fault, names, policy)
        if name:
            pairs += [((fault.cause.names[0], partner), name) for partner in _partner(fault, good)]
        elif not name and _conflicting(evidence, fault, names, policy):
            pairs += [((fault.cause.names[0], other), "") for other in _partner(fault, good)]
    compared = pairs[0][1] if pairs else ""
    if compared and len(good) > 1:
        one = good.take(evidence.fleet.nodes[0], lambda _: True)
        other = good.take(one, good.near(one)) if one else None
        if one and other:
            pairs.append(((one, other), compared))
    return pairs


def _next(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> str:
    """The adapter to run next: each once, then a single bad one again to rule out chance; "" if none is left."""
    if not testable(evidence, fault):
        return ""
    node = fault.cause.names[0]
    done = [run.rail for run in _runs(evidence, node)]
    left = [name for name in evidence.rails if name not in done]
    if left:
        return left[0]
    bad = adapters(evidence, fault, faults, policy).bad
    return next((name for name in bad if len(bad) == 1 and done.count(name) == 1), "")


def _partner(fault: Fault, good: KnownGoodPool) -> list[str]:
    partner = good.take(fault.cause.names[0], good.near(fault.cause.names[0]))
    return [partner] if partner else []


def _conflicting(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> bool:
    """True if every single adapter was fine, and the node was not run over all of them since."""
    runs = _runs(evidence, fault.cause.names[0])
    if not testable(evidence, fault) or not runs or adapters(evidence, fault, faults, policy).bad:
        return False
    last = max(run.number for run in runs)
    return all(run.number < last for run in evidence.launches_by_node[fault.cause.names[0]])


def testable(evidence: Evidence, fault: Fault) -> bool:
    """True if its adapters can be run one by one: for a node that answers, has several, and does not hang."""
    hangs = {run.failed for run in evidence.pairs if run.number in fault.bad} & {"hung", "killed"}
    return len(evidence.rails) > 1 and fault.cause.kind is Kind.NODE and not fault.lost and not hangs


def nodes_of(faults: Sequence[Fault]) -> frozenset[str]:
    """The bad nodes: runs with them are no reference for others."""
    return frozenset(fault.cause.names[0] for fault in faults if fault.cause.kind is Kind.NODE)


def _runs(evidence: Evidence, node: str) -> list[Observation]:
    return [run for run in evidence.runs if run.rail and node in run.nodes]


def adapters(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> Adapters:
    """Sort the runs of a node's adapters into bad and fine.

    An adapter is compared with those of good pairs, or without any, with the faster half of the node's own adapters.
    """
    node = fault.cause.names[0]
    runs = _runs(evidence, node)
    healthy = [s.gbs for s in evidence.runs if s.rail and s.gbs is not None and faults.isdisjoint(s.nodes)]
    ref = reference(healthy if len(healthy) > 1 else [run.gbs for run in runs if run.gbs is not None])
    sorted_runs = Adapters({}, {})
    for run in runs:
        if run.start_failure:
            continue
        side = sorted_runs.bad if _bad(run, ref, fault, policy) else sorted_runs.fine
        side.setdefault(run.rail, []).append(run)
    return sorted_runs


def _bad(run: Observation, ref: Reference | None, fault: Fault, policy: Policy) -> bool:
    if run.failed:
        return True
    if ref is None or run.gbs is None:
        return False
    whole = -math.log(1 - fault.slower) if fault.slower else 0.0
    return math.log(ref.gbs / run.gbs) > max(policy.least_gap, 4 * ref.scale, whole / 2)


def with_adapter(evidence: Evidence, fault: Fault, faults: Set[str], policy: Policy) -> Fault:
    """The fault with its adapter, if the runs over single adapters show one."""
    if not testable(evidence, fault):
        return fault
    tested = adapters(evidence, fault, faults, policy)
    names = sorted({*tested.bad, *tested.fine})
    if not names:
        return fault
    fault = replace(fault, bad_over_one=tuple(run.number for runs in tested.bad.values() for run in runs))
    if len(tested.bad) == 1:
        (name, runs) = next(iter(tested.bad.items()))
        if len(runs) > 1 and name not in tested.fine:
            return replace(
                fault, rail=name, rail_summary=f"{len(runs)} runs over {name} alone were bad, none over others"
            )
        summary = f"{name} alone was bad in {len(runs)} of {len(runs) + len(tested.fine.get(name, []))} runs: not sure"
        return replace(fault, rail_summary=summary)
    if set(tested.bad) >= set(names):
        return replace(fault, rail_summary="bad over every one of its adapters: not an adapter")
    some = ", ".join(sorted(tested.bad))
    fine = f"each of the {len(names)} adapters that were run by themselves was fine"
    return replace(fault, rail_summary=f"several of its adapters were bad: {some}" if some else fine)
