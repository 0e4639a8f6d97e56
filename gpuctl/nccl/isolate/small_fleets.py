"""Small fleets with several bad nodes: if some pairs do not show which speed is the right one, every pair is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

from gpuctl.core import text
from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.controls import NODES_PER_CONTROL
from gpuctl.nccl.isolate.follow_up import crowded
from gpuctl.nccl.isolate.model import Conclusion, Fault, Kind, Policy, Round, Unresolved
from gpuctl.nccl.isolate.observations import FEW_NODES, REACHES, Evidence, ordered
from gpuctl.nccl.isolate.speed_clusters import Pair, SpeedClusters, whole
from gpuctl.nccl.isolate.verdict import conclusion
from gpuctl.nccl.model import Launch

ALL_ALIKE = 8  # largest fleet of which every pair is run if none stands out: each pair may have had a bad node
MANY = 1 / 3  # share of slow nodes from which every pair has to confirm them
PARTNERS = 4  # good nodes that a slow one must have met if racks are not known
MOST_TRIED = 8  # pairs that are tried as the control of a round
MOST_NAMES = 8


def unclear(evidence: Evidence, attribution: Attribution, unresolved: Sequence[Unresolved]) -> bool:
    """True if, in a small fleet, the runs so far leave open which nodes are bad, or whether one is."""
    if len(evidence.alive) > FEW_NODES:
        return False
    by_chance = {frozenset(run.nodes) for run in attribution.chance if (run.shortfall or 0.0) > evidence.far}
    if (
        unresolved
        or evidence.faster_pairs
        or _only_good(evidence, attribution)
        or len(by_chance) > 1
        or _path_or_racks(evidence, attribution)
        or _many(evidence, attribution)
    ):
        return True
    return not attribution.faults and len(evidence.alive) <= ALL_ALIKE and not as_expected(evidence)


def as_expected(evidence: Evidence) -> bool:
    """True if the usual pair is as fast as a baseline expects; False without a baseline."""
    expected, usual = evidence.fleet.expected_gbs, evidence.usual_gbs
    return expected is not None and usual is not None and usual >= REACHES * expected


def racks_known(evidence: Evidence) -> bool:
    """True if the rack of every node is known."""
    return all(node in evidence.fleet.racks for node in evidence.fleet.nodes)


def _only_good(evidence: Evidence, attribution: Attribution) -> list[tuple[str, ...]]:
    """The only pair of nodes that are not slow, which has to be fast more than once."""
    slow = {fault.cause.names[0] for fault in attribution.faults if fault.cause.kind is Kind.NODE and not fault.failing}
    slow |= evidence.clusters.slow_nodes
    left = tuple(node for node in evidence.alive if node not in slow and node in evidence.runs_by_node)
    return [left] if slow and len(left) == 2 else []


def _path_or_racks(evidence: Evidence, attribution: Attribution) -> bool:
    """True if a slow path, or a node that is slow with some others, may as well be an effect of unknown racks."""
    slow = any(
        not fault.failing and (fault.cause.kind is Kind.LINK or fault.intermittent) for fault in attribution.faults
    )
    return slow and not racks_known(evidence)


def meet_others(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """Slow nodes of a small fleet with more partners, near ones first, if racks are not known; None if none is due.

    Such a node may be fast in its own rack. A node that is slow with PARTNERS others is bad, or alone in its rack. A
    single slow node of more than ALL_ALIKE is not tested: between racks more than one pair would be slow.
    """
    slow = [g.cause.names[0] for g in attribution.faults if g.cause.kind is Kind.NODE and not g.failing]
    slow = [node for node in slow if node not in evidence.excluded]
    one_of_many = len(slow) < 2 and len(evidence.alive) > ALL_ALIKE
    if evidence.stalled or one_of_many or len(evidence.alive) > FEW_NODES or racks_known(evidence):
        return None
    good = [
        node
        for node in evidence.alive
        if node not in slow and node in evidence.runs_by_node and node not in evidence.excluded
    ]
    place = {node: number for number, node in enumerate(evidence.fleet.nodes)}
    candidates: list[Pair] = []
    for node in slow:
        met = {other for run in evidence.launches_by_node[node] for other in run.nodes}
        if len(met & set(good)) < PARTNERS:
            near = sorted(set(good) - met, key=lambda other: (abs(place[other] - place[node]), place[other]))
            candidates += [(node, other) for other in near]
    pairs = _disjoint(candidates, evidence)
    return _round(pairs, "slow nodes with others, as it is not known which share a rack", policy) if pairs else None


def _many(evidence: Evidence, attribution: Attribution) -> bool:
    """True if enough nodes are slow that a good one may be among them, which only met bad ones."""
    every = [fault for fault in attribution.faults if not fault.failing]
    slow = [fault for fault in every if fault.cause.kind is Kind.NODE]
    mixed = len(every) > 1 and (len(slow) < len(every) or any(fault.intermittent for fault in every))
    return mixed or len(slow) > MANY * len(evidence.alive)


def next_round(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """Pairs that were not run so far; then those again that were faster than all others and ran only once.

    None for larger fleets, and if runs fail, as each of them may last until the time limit.
    """
    if evidence.stalled or len(evidence.alive) > FEW_NODES or any(run.failed for run, _ in attribution.open):
        return None
    out = {name for fault in attribution.faults if fault.failing for name in fault.cause.names}
    out |= {*evidence.untested, *evidence.excluded}
    nodes = [node for node in evidence.alive if node not in out]
    if pairs := not_run(evidence, nodes):
        return _round(
            _beside_controls(evidence, nodes, pairs), "pairs not run so far, as several nodes may be bad", policy
        )
    once = [pair for pair in (*evidence.faster_pairs, *_only_good(evidence, attribution)) if _due_again(evidence, pair)]
    pairs = _disjoint(once, evidence)
    return _round(pairs, "pairs that are faster than all others, again", policy) if pairs else None


def not_run(evidence: Evidence, nodes: Sequence[str]) -> list[Pair]:
    """Disjoint pairs of these nodes that never ran."""
    done = {frozenset(run.nodes) for run in (*evidence.pairs, *evidence.failed_starts)}
    return _disjoint([pair for pair in combinations(nodes, 2) if frozenset(pair) not in done], evidence)


def _beside_controls(evidence: Evidence, nodes: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """The next pairs with some that ran before in their place, so that rounds of all nodes can be compared.

    Such a pair is steady, be it fast or slow: its nodes were in no run that was slower than the others of its time.
    """
    steady = dict.fromkeys(ordered(run.nodes) for run in evidence.pairs if evidence.is_steady(run))
    controls: list[Pair] = []
    left, chosen = list(nodes), list(pairs)
    while len(controls) < max(1, len(nodes) // NODES_PER_CONTROL):
        candidates = [pair for pair in steady if set(pair) <= set(left)][:MOST_TRIED]
        rests = [[node for node in left if node not in pair] for pair in candidates]
        after = [not_run(evidence, rest) for rest in rests]
        best = max(range(len(after)), key=lambda number: len(after[number]), default=None)
        if best is None or not after[best]:
            break
        controls.append(candidates[best])
        left, chosen = rests[best], after[best]
    return [*chosen, *controls]


def _disjoint(pairs: Iterable[Sequence[str]], evidence: Evidence) -> list[Pair]:
    chosen: list[Pair] = []
    for one, other in pairs:
        busy = {node for pair in chosen for node in pair}
        if not {one, other} & busy and not crowded([*chosen, (one, other)], evidence.fleet.racks):
            chosen.append((one, other))
    return chosen


def _due_again(evidence: Evidence, pair: Sequence[str]) -> bool:
    """True if the pair ran exactly once and can be run again."""
    launches = [run for run in evidence.launches_by_node[pair[0]] if set(run.nodes) == set(pair)]
    return sum(not run.start_failure for run in launches) == 1 and evidence.excluded.isdisjoint(pair)


def _round(pairs: Iterable[Pair], why: str, policy: Policy) -> Round:
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why)


def undecided(evidence: Evidence) -> bool:
    """True if every pair was run and it still is not clear which of two speeds is the right one."""
    groups = bool(evidence.clusters.groups) and not racks_known(evidence)
    return bool(evidence.clusters.sides) or groups or _mostly_slow(evidence)


def _mostly_slow(evidence: Evidence) -> bool:
    """True if, in a small fleet, most pairs are slow without a pattern: a good node then looks like a bad one."""
    gone = evidence.lost | evidence.excluded
    usable = {pair: gap for pair, gap in evidence.pair_shortfalls.items() if gone.isdisjoint(pair)}
    left = {pair: gap for pair, gap in usable.items() if evidence.clusters.slow_nodes.isdisjoint(pair)}
    slow = [pair for pair, gap in left.items() if gap > evidence.far]
    every = whole({node for pair in usable for node in pair}, [usable])
    return every and len(evidence.alive) <= FEW_NODES and 2 * len(slow) > len(left)


def undecided_conclusion(evidence: Evidence, attribution: Attribution, policy: Policy) -> Conclusion:
    """The conclusion in that case: it names only the faults that do not depend on the right speed."""
    certain = tuple(fault for fault in attribution.faults if _is_certain(fault, evidence))
    numbers = tuple(run.number for run in evidence.pairs if not evidence.clusters.slow_nodes & set(run.nodes))
    speeds = {tuple(run.nodes): run.gbs for run in evidence.pairs if run.gbs is not None}
    unresolved = Unresolved(numbers, (), describe_speeds(evidence.clusters, speeds))
    return conclusion(evidence, replace(attribution, faults=certain), (unresolved,), policy)


def _is_certain(fault: Fault, evidence: Evidence) -> bool:
    slow = fault.cause.kind is Kind.NODE and fault.cause.names[0] in evidence.clusters.slow_nodes
    return fault.lost or fault.failing or slow


def describe_speeds(clusters: SpeedClusters, speeds: Mapping[tuple[str, ...], float]) -> str:
    """Both speeds and their nodes, if either may be the right one. `speeds`: GB/s by pair."""
    if not clusters.groups and not clusters.sides:
        return "most pairs are slow, and no set of bad nodes explains which: no majority shows which speed is right"
    group_of = {node: number for number, nodes in enumerate(clusters.groups or clusters.sides[:1]) for node in nodes}
    within = [
        gbs for pair, gbs in speeds.items() if len({group_of.get(node) for node in pair}) == 1 and pair[0] in group_of
    ]
    across = [
        gbs
        for pair, gbs in speeds.items()
        if not clusters.slow_nodes & set(pair) and len({group_of.get(node, node) for node in pair}) > 1
    ]
    fast, slow = f"{median(within):.0f} GB/s", f"{median(across):.0f}"
    if clusters.groups:
        groups = "; ".join(names(nodes) for nodes in clusters.groups)
        return (
            f"pairs have two speeds, as within and across racks: {fast} within groups of nodes ({groups}) and {slow}"
            f" across; set the racks of the nodes, to distinguish racks from faults"
        )
    few, many = clusters.sides
    return (
        f"pairs have two speeds: {fast} among {names(few)} and {slow} with {names(many)}; the latter are more than"
        f" half of the nodes, so either they are bad, or the others are only nearer to each other"
    )


def names(nodes: Sequence[str]) -> str:
    """At most MOST_NAMES of them, and the number of the others."""
    return text.named(nodes, MOST_NAMES)
