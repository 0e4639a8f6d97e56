"""Fleets whose racks are not known: a slow pair may be slow only because its nodes are in different racks.

A bad node is slow with every other. A node that is always slow with some and always fast with others looks as if it
were in another rack than the former. Names usually follow racks: of the nearest nodes before and after a node, one is
in its rack.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Set
from dataclasses import replace
from statistics import median

from gpuctl.core import text
from gpuctl.nccl.isolate import pairing, small_fleets
from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.follow_up import Pair, ran_well
from gpuctl.nccl.isolate.model import Fault, Kind, Policy, Round, Unresolved
from gpuctl.nccl.isolate.observations import FEW_NODES, Evidence, Observation, ordered
from gpuctl.nccl.model import Launch

WHY = "slow with some nodes and fast with others, always the same, as across racks: set the racks of the nodes"
ALIKE = "no slower than some nodes are with others of the fleet, as across racks: set the racks of the nodes"
MANY = 3
SAME_AGAIN = (
    8  # runs of pairs of a node that ran before, after which one that comes and goes has changed in one of them
)
USUAL = 0.03  # shortfall below which a run is as fast as others
IN_NO_ORDER = 0.2  # share of slow neighbours above which the order of the nodes hardly follows racks
MEETINGS = 2  # other slow nodes that each of many slow ones is run with
SIMILAR = 1.15  # a shortfall below so many times that of an effect of racks may be one, too
ONE_SIDE = "slow with {}, which may be in another rack: set the racks of the nodes"


def next_round(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """Runs of slow nodes that show an effect of racks; None if none is due."""
    return (
        both_sides(evidence, attribution, policy)
        or among_slow_nodes(evidence, attribution, policy)
        or same_again(evidence, attribution, policy)
    )


def same_again(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """Pairs of nodes that are slow with some and fast with others, once more: between racks they stay as they were.

    None for MANY such nodes, which racks explain better, and once a node met SAME_AGAIN pairs a second time.
    """
    if small_fleets.racks_known(evidence) or evidence.stalled:
        return None
    mixed = [
        fault
        for fault in _slow(evidence, attribution)
        if fault.cause.kind is Kind.NODE and not _is_slow_with_all(fault, evidence) and not is_changing(fault, evidence)
    ]
    busy, pairs = set[str](), list[Pair]()
    for fault in mixed if len(mixed) < MANY else ():
        pair = _least_repeated(fault, evidence)
        if pair is not None and busy.isdisjoint(pair):
            pairs.append(pair)
            busy |= set(pair)
    why = "nodes that are slow with some and fast with others, with the same once more: racks would change nothing"
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why) if pairs else None


def _least_repeated(fault: Fault, evidence: Evidence) -> Pair | None:
    """The pair of this node to run again: by turns one that was slow and one that was fast; None after SAME_AGAIN."""
    runs: dict[Pair, list[Observation]] = defaultdict(list)
    for run in _comparable(fault, evidence):
        if evidence.excluded.isdisjoint(run.nodes) and evidence.lost.isdisjoint(run.nodes):
            runs[ordered(run.nodes)].append(run)
    repeats = sum(len(of_pair) - 1 for of_pair in runs.values())
    if repeats >= SAME_AGAIN:
        return None
    slow = _slow_from(fault, evidence)
    by_turns = [pair for pair in runs if ((runs[pair][0].shortfall or 0.0) >= slow) == (repeats % 2 == 0)]
    return min(by_turns or runs, key=lambda pair: len(runs[pair]), default=None)


def both_sides(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """Slow nodes with the nearest good node before and after them that they have not met; None if none is due."""
    if small_fleets.racks_known(evidence) or evidence.stalled:
        return None
    busy: set[str] = set()
    pairs: list[Pair] = []
    for fault in _slow(evidence, attribution):
        node = fault.cause.names[0]
        if fault.cause.kind is not Kind.NODE or node in evidence.excluded or not _is_slow_with_all(fault, evidence):
            continue
        other = next((near for near in _due(node, evidence, attribution) if near not in busy), None)
        if other is not None and node not in busy:
            pairs.append((node, other))
            busy |= {node, other}
    why = "slow nodes with the nearest ones on either side, as it is not known which share a rack"
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why) if pairs else None


def among_slow_nodes(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """MANY slow nodes of a larger fleet with each other, twice at most: healthy ones of one rack are fast together."""
    few = len(evidence.alive) <= FEW_NODES
    if few or small_fleets.racks_known(evidence) or evidence.stalled:
        return None
    names = {fault.cause.names[0] for fault in _slow(evidence, attribution) if fault.cause.kind is Kind.NODE}
    slow = [node for node in evidence.alive if node in names - evidence.excluded]
    met = {frozenset(run.nodes) for node in slow for run in evidence.launches_by_node[node]}
    with_slow = {node: sum(node in pair and pair <= names for pair in met) for node in slow}
    due = [node for node in slow if with_slow[node] < MEETINGS]
    if len(slow) < MANY or len(due) < 2:
        return None
    turns = (pairing.neighbours(due, turn) for turn in range(len(due)))
    pairs = next((new for pairs in turns if (new := [pair for pair in pairs if frozenset(pair) not in met])), ())
    why = "slow nodes with each other, as those of one rack would be fast together"
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why) if pairs else None


def without_rack_effects(
    evidence: Evidence, attribution: Attribution, effect: float = 0.0
) -> tuple[Attribution, tuple[Unresolved, ...]]:
    """The attribution without the slow causes that unknown racks may explain as well, and these as unresolved.

    `effect`: the shortfall of runs that only racks explain. Nodes that are no slower may only have met nodes of other
    racks. So may nodes that are no slower than some that are slow with some and fast with others, if many are either.
    """
    if small_fleets.racks_known(evidence):
        return attribution, ()
    whys = [(fault, _why(fault, evidence, attribution)) for fault in _slow(evidence, attribution)]
    always = {fault.cause.names[0] for fault, why in whys if not why}
    mixed = [fault for fault, why in whys if why == WHY]
    least = SIMILAR * max([effect, *(_apart_from(always, fault, evidence) for fault in mixed)])
    alike = {
        fault.cause for fault, why in whys if not why and _shortfall(fault) < least and not is_changing(fault, evidence)
    }
    first = evidence.pairs[: len(evidence.fleet.nodes) // 2]  # neighbours in order
    in_no_order = sum((run.shortfall or 0.0) > evidence.far for run in first) > IN_NO_ORDER * len(first)
    enough = (effect and in_no_order) or len(alike) >= MANY or len(mixed) >= 2 * MANY
    whys = [(fault, ALIKE if fault.cause in alike and enough else why) for fault, why in whys]
    doubtful = {fault.cause: why for fault, why in whys if why}
    faults = tuple(fault for fault in attribution.faults if fault.cause not in doubtful)
    unresolved = tuple(Unresolved(fault.bad, (fault.cause,), why) for fault, why in whys if why)
    return replace(attribution, faults=faults), unresolved


def _shortfall(fault: Fault) -> float:
    """The usual shortfall of its bad runs."""
    return -math.log(1 - (fault.slower or 0.0))


def _apart_from(others: Set[str], fault: Fault, evidence: Evidence) -> float:
    """The usual shortfall of its bad runs with none of the others; 0 without such a run."""
    runs = [run for run in _comparable(fault, evidence) if run.number in fault.bad and others.isdisjoint(run.nodes)]
    return median(run.shortfall or 0.0 for run in runs) if runs else 0.0


def _slow(evidence: Evidence, attribution: Attribution) -> list[Fault]:
    """The slow nodes and paths, without nodes that all pairs have shown to be slow."""
    slow = (fault for fault in attribution.faults if not fault.failing and not fault.lost)
    return [
        g
        for g in slow
        if g.cause.kind in (Kind.NODE, Kind.LINK) and g.cause.names[0] not in evidence.clusters.slow_nodes
    ]


def _why(fault: Fault, evidence: Evidence, attribution: Attribution) -> str:
    """The reason why the fault may as well be an effect of racks; "" if it cannot be."""
    met = _met(fault, evidence)
    if is_changing(fault, evidence):  # the effect of racks is not intermittent
        return ""
    if fault.cause.kind is Kind.LINK or not _is_slow_with_all(fault, evidence):
        return WHY
    others = sorted({other for nodes, _ in met for other in nodes} - set(fault.cause.names))
    return ONE_SIDE.format(text.named(others)) if _due(fault.cause.names[0], evidence, attribution) else ""


def is_changing(fault: Fault, evidence: Evidence) -> bool:
    """True if the same pair was slow in one run and as fast as the usual pair in another.

    Over loaded uplinks it may be very slow and less slow.
    """
    by_pair: dict[frozenset[str], list[float]] = defaultdict(list)
    for run in _comparable(fault, evidence):
        by_pair[frozenset(run.nodes)].append(run.shortfall or 0.0)
    slow = _slow_from(fault, evidence)
    usual = min(slow / 2, max(USUAL, 4 * evidence.scale))
    return any(max(gaps) >= slow and min(gaps) < usual for gaps in by_pair.values())


def _is_slow_with_all(fault: Fault, evidence: Evidence) -> bool:
    return all(slow for _, slow in _met(fault, evidence))


def _met(fault: Fault, evidence: Evidence) -> list[tuple[frozenset[str], bool]]:
    """Every comparable run of a fault: the nodes, and whether it was slow."""
    slow = _slow_from(fault, evidence)
    return [(frozenset(run.nodes), (run.shortfall or 0.0) >= slow) for run in _comparable(fault, evidence)]


def _slow_from(fault: Fault, evidence: Evidence) -> float:
    """The shortfall from which a run counts as slow."""
    gaps = [run.shortfall for run in evidence.pairs if run.number in fault.bad and run.shortfall is not None]
    return max(0.25 * min(gaps, default=0.0), 2 * evidence.scale)


def _comparable(fault: Fault, evidence: Evidence) -> list[Observation]:
    runs = evidence.runs_by_node[fault.cause.names[0]]
    return [run for run in runs if run.shortfall is not None and set(fault.cause.names) <= set(run.nodes)]


def _due(node: str, evidence: Evidence, attribution: Attribution) -> list[str]:
    """The nearest good node on each side that it has not met. If their run cannot be compared, the next one serves."""
    tried = {other for run in evidence.launches_by_node.get(node, ()) for other in run.nodes}
    met = {other for run in evidence.runs_by_node.get(node, ()) if run.shortfall is not None for other in run.nodes}
    bad = {name for fault in attribution.faults if fault.failing for name in fault.cause.names}
    bad |= {fault.cause.names[0] for fault in _slow(evidence, attribution) if _is_slow_with_all(fault, evidence)}
    good = ran_well(evidence) - bad - evidence.excluded - (tried - met)
    at = evidence.fleet.nodes.index(node)
    sides = (evidence.fleet.nodes[:at][::-1], evidence.fleet.nodes[at + 1 :])
    nearest = [next((other for other in side if other in good and other not in evidence.lost), None) for side in sides]
    return [other for other in nearest if other is not None and other not in met]
