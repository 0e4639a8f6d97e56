"""Where nobody said which rack each node is in: what is slow may be slow for the way between racks alone.

A node that is bad is slow with everybody. One that is slow with some and fast with others, always the same ones, looks
as if it stood in another rack than they do. Names follow racks as a rule: of the nearest nodes before and after it one
is in its own.
"""

from __future__ import annotations

from dataclasses import replace

from gpuctl.core import text
from gpuctl.nccl.isolate import small_fleets
from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.follow_up import Pair, ran_well
from gpuctl.nccl.isolate.model import Fault, Kind, Policy, Round, Unresolved
from gpuctl.nccl.isolate.observations import Evidence
from gpuctl.nccl.model import Launch

WHY = "slow with some nodes and fast with others, always the same, as across racks: say which rack each node is in"
ONE_SIDE = "slow with {}, and nobody knows whether they share its rack: say which rack each node is in"


def both_sides(evidence: Evidence, explained: Attribution, policy: Policy) -> Round | None:
    """Slow nodes with the nearest good one before and after them, as far as they have not met these."""
    if small_fleets.racks_known(evidence) or evidence.stalled:
        return None
    busy: set[str] = set()
    pairs: list[Pair] = []
    for fault in _slow(evidence, explained):
        node = fault.cause.names[0]
        if fault.cause.kind is not Kind.NODE or node in evidence.excluded or not _is_slow_with_all(fault, evidence):
            continue
        other = next((each for each in _due(node, evidence, explained) if each not in busy), None)
        if other is not None and node not in busy:
            pairs.append((node, other))
            busy |= {node, other}
    why = "slow nodes with the nearest ones on either side, as it is not known which share a rack"
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why) if pairs else None


def judged(evidence: Evidence, explained: Attribution) -> tuple[Attribution, tuple[Unresolved, ...]]:
    """What is explained without the slow causes that racks may explain as well, and a doubt about each of these."""
    if small_fleets.racks_known(evidence):
        return explained, ()
    whys = [(fault, _why(fault, evidence, explained)) for fault in _slow(evidence, explained)]
    doubtful = {fault.cause: why for fault, why in whys if why}
    faults = tuple(fault for fault in explained.faults if fault.cause not in doubtful)
    unresolved = tuple(Unresolved(fault.bad, (fault.cause,), why) for fault, why in whys if why)
    return replace(explained, faults=faults), unresolved


def _slow(evidence: Evidence, explained: Attribution) -> list[Fault]:
    """Those that are slow, and that not every pair has set apart."""
    found = (fault for fault in explained.faults if not fault.failing and not fault.lost)
    return [
        g
        for g in found
        if g.cause.kind in (Kind.NODE, Kind.LINK) and g.cause.names[0] not in evidence.clusters.slow_nodes
    ]


def _why(fault: Fault, evidence: Evidence, explained: Attribution) -> str:
    """Why it may as well be the way between racks; "" where it may not."""
    met = _met(fault, evidence)
    changing = any(len({was_bad for other, was_bad in met if other == each}) > 1 for each, _ in met)
    if changing:  # racks do not come and go
        return ""
    if fault.cause.kind is Kind.LINK or not _is_slow_with_all(fault, evidence):
        return WHY
    others = sorted({other for nodes, _ in met for other in nodes} - set(fault.cause.names))
    return ONE_SIDE.format(text.named(others)) if _due(fault.cause.names[0], evidence, explained) else ""


def _is_slow_with_all(fault: Fault, evidence: Evidence) -> bool:
    return all(slow for _, slow in _met(fault, evidence))


def _met(fault: Fault, evidence: Evidence) -> list[tuple[frozenset[str], bool]]:
    """Every run of it that can be compared: the nodes, and whether it was slow. Who was fast with anybody is fast."""
    gaps = [run.shortfall for run in evidence.pairs if run.number in fault.bad and run.shortfall is not None]
    slow = max(0.25 * min(gaps, default=0.0), 2 * evidence.scale)
    runs = (run for run in evidence.runs_by_node[fault.cause.names[0]] if set(fault.cause.names) <= set(run.nodes))
    return [(frozenset(run.nodes), run.shortfall >= slow) for run in runs if run.shortfall is not None]


def _due(node: str, evidence: Evidence, explained: Attribution) -> list[str]:
    """The nearest node on each side of it that is not bad with everybody, as far as they have not met; a run that
    cannot be compared tells nothing, and the next one serves."""
    tried = {other for run in evidence.launches_by_node.get(node, ()) for other in run.nodes}
    met = {other for run in evidence.runs_by_node.get(node, ()) if run.shortfall is not None for other in run.nodes}
    bad = {name for fault in explained.faults if fault.failing for name in fault.cause.names}
    bad |= {fault.cause.names[0] for fault in _slow(evidence, explained) if _is_slow_with_all(fault, evidence)}
    good = ran_well(evidence) - bad - evidence.excluded - (tried - met)
    at = evidence.fleet.nodes.index(node)
    sides = (evidence.fleet.nodes[:at][::-1], evidence.fleet.nodes[at + 1 :])
    nearest = [next((other for other in side if other in good and other not in evidence.lost), None) for side in sides]
    return [other for other in nearest if other is not None and other not in met]
