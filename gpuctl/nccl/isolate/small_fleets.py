"""Several bad nodes among a few: where some pairs do not tell which speed is the right one, every pair does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

from gpuctl.core import text
from gpuctl.nccl.isolate import verdict as proof
from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.follow_up import crowded
from gpuctl.nccl.isolate.model import Conclusion, Fault, Kind, Policy, Round, Unresolved
from gpuctl.nccl.isolate.observations import FASTER, FEW_NODES, REACHES, Evidence
from gpuctl.nccl.isolate.speed_clusters import Pair, SpeedClusters, whole
from gpuctl.nccl.model import Launch

ALL_ALIKE = 8  # nodes up to which every pair is run where none stands out: in each there may have been a bad node
MANY = 1 / 3  # of the nodes held for slow: then every pair has to show it
PARTNERS = 4  # good nodes that a slow one has to have met where racks are not known
MOST_NAMES = 8


def unclear(evidence: Evidence, explained: Attribution, unresolved: Sequence[Unresolved]) -> bool:
    """Whether, of a few nodes, the runs so far leave open which are bad, or whether any is."""
    if len(evidence.alive) > FEW_NODES:
        return False
    by_chance = {frozenset(run.nodes) for run in explained.chance if (run.shortfall or 0.0) > FASTER}
    if (
        unresolved
        or evidence.faster_pairs
        or _only_good(evidence)
        or len(by_chance) > 1
        or _path_or_racks(evidence, explained)
        or _many(evidence, explained)
    ):
        return True
    return not explained.faults and len(evidence.alive) <= ALL_ALIKE and not as_expected(evidence)


def as_expected(evidence: Evidence) -> bool:
    """Whether a baseline says that the usual pair is as fast as it should be."""
    expected, usual = evidence.fleet.expected_gbs, evidence.usual_gbs
    return expected is not None and usual is not None and usual >= REACHES * expected


def racks_known(evidence: Evidence) -> bool:
    """Of every node."""
    return all(node in evidence.fleet.racks for node in evidence.fleet.nodes)


def _only_good(evidence: Evidence) -> list[tuple[str, ...]]:
    """The one pair that is left where all other nodes are set apart: it has to be fast more than once."""
    left = tuple(
        node for node in evidence.alive if node not in evidence.clusters.slow_nodes and node in evidence.runs_by_node
    )
    return [left] if evidence.clusters.slow_nodes and len(left) == 2 else []


def _path_or_racks(evidence: Evidence, explained: Attribution) -> bool:
    """Whether what is held for slow, a path or a node with some, may as well lie between racks nobody told us of."""
    slow = any(not fault.failing and (fault.cause.kind is Kind.LINK or fault.flaky) for fault in explained.faults)
    return slow and not racks_known(evidence)


def meet_others(evidence: Evidence, explained: Attribution, policy: Policy) -> Round | None:
    """Slow nodes of a few with more others, near ones first, where racks are not known: they may be fast in their own.

    A node that is slow with so many is bad, or alone in its rack. Of more than a handful a single one is not asked
    about: there, between racks, more than one pair would be slow.
    """
    slow = [g.cause.names[0] for g in explained.faults if g.cause.kind is Kind.NODE and not g.failing]
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
    wanted: list[Pair] = []
    for node in slow:
        met = {other for run in evidence.launches_by_node[node] for other in run.nodes}
        if len(met & set(good)) < PARTNERS:
            near = sorted(set(good) - met, key=lambda other: (abs(place[other] - place[node]), place[other]))
            wanted += [(node, other) for other in near]
    found = _disjoint(wanted, evidence)
    return _round(found, "slow nodes with others, as it is not known which share a rack", policy) if found else None


def _many(evidence: Evidence, explained: Attribution) -> bool:
    """Whether so many are held for slow that a good one may be among them, which met bad ones only."""
    every = [fault for fault in explained.faults if not fault.failing]
    slow = [fault for fault in every if fault.cause.kind is Kind.NODE]
    mixed = len(every) > 1 and (len(slow) < len(every) or any(fault.flaky for fault in every))
    return mixed or len(slow) > MANY * len(evidence.alive)


def next_round(evidence: Evidence, explained: Attribution, policy: Policy) -> Round | None:
    """Pairs that were not run so far; then those again that were faster than all others and ran only once.

    None where there are more than a few nodes, and where runs fail, as each of them may take as long as a hang may.
    """
    if evidence.stalled or len(evidence.alive) > FEW_NODES or any(run.failed for run, _ in explained.open):
        return None
    out = {name for fault in explained.faults if fault.failing for name in fault.cause.names}
    out |= {*evidence.untested, *evidence.excluded}
    if found := not_run(evidence, [node for node in evidence.alive if node not in out]):
        return _round(found, "pairs not run so far, as several nodes may be bad", policy)
    once = [pair for pair in (*evidence.faster_pairs, *_only_good(evidence)) if _due_again(evidence, pair)]
    found = _disjoint(once, evidence)
    return _round(found, "pairs that are faster than all others, again", policy) if found else None


def not_run(evidence: Evidence, nodes: Sequence[str]) -> list[Pair]:
    """Disjoint pairs of these nodes that were never run."""
    done = {frozenset(run.nodes) for run in (*evidence.pairs, *evidence.failed_starts)}
    return _disjoint([pair for pair in combinations(nodes, 2) if frozenset(pair) not in done], evidence)


def _disjoint(pairs: Iterable[Sequence[str]], evidence: Evidence) -> list[Pair]:
    found: list[Pair] = []
    for one, other in pairs:
        busy = {node for pair in found for node in pair}
        if not {one, other} & busy and not crowded([*found, (one, other)], evidence.fleet.racks):
            found.append((one, other))
    return found


def _due_again(evidence: Evidence, pair: Sequence[str]) -> bool:
    """Whether it was run once only, and may be run again."""
    launches = [run for run in evidence.launches_by_node[pair[0]] if set(run.nodes) == set(pair)]
    return sum(not run.start_failure for run in launches) == 1 and evidence.excluded.isdisjoint(pair)


def _round(pairs: Iterable[Pair], why: str, policy: Policy) -> Round:
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why)


def undecided(evidence: Evidence) -> bool:
    """Whether every pair was run, and still it cannot be said which of two speeds is the right one."""
    groups = bool(evidence.clusters.groups) and not racks_known(evidence)
    return bool(evidence.clusters.sides) or groups or _mostly_slow(evidence)


def _mostly_slow(evidence: Evidence) -> bool:
    """Whether, of a few nodes, most pairs are slow in no pattern: then a good node looks as bad as a bad one."""
    gone = evidence.lost | evidence.excluded
    able = {pair: gap for pair, gap in evidence.pair_shortfalls.items() if gone.isdisjoint(pair)}
    left = {pair: gap for pair, gap in able.items() if evidence.clusters.slow_nodes.isdisjoint(pair)}
    slow = [pair for pair, gap in left.items() if gap > FASTER]
    every = whole({node for pair in able for node in pair}, [able])
    return every and len(evidence.alive) <= FEW_NODES and 2 * len(slow) > len(left)


def verdict(evidence: Evidence, explained: Attribution, policy: Policy) -> Conclusion:
    """What it comes to then: only who is bad beside that is named."""
    named = tuple(fault for fault in explained.faults if _beside(fault, evidence))
    numbers = tuple(run.number for run in evidence.pairs if not evidence.clusters.slow_nodes & set(run.nodes))
    why = says(evidence.clusters, {tuple(run.nodes): run.gbs for run in evidence.pairs if run.gbs is not None})
    return proof.conclusion(evidence, replace(explained, faults=named), (Unresolved(numbers, (), why),), policy)


def _beside(fault: Fault, evidence: Evidence) -> bool:
    apart = fault.cause.kind is Kind.NODE and fault.cause.names[0] in evidence.clusters.slow_nodes
    return fault.lost or fault.failing or apart


def says(cluster_speeds: SpeedClusters, speeds: Mapping[tuple[str, ...], float]) -> str:
    """Both speeds and whose they are, where it cannot be said which is the right one."""
    if not cluster_speeds.groups and not cluster_speeds.sides:
        return "most pairs are slow, and no set of bad nodes explains which: no majority tells which speed is right"
    of = {
        node: number for number, nodes in enumerate(cluster_speeds.groups or cluster_speeds.sides[:1]) for node in nodes
    }
    within = [gbs for pair, gbs in speeds.items() if len({of.get(node) for node in pair}) == 1 and pair[0] in of]
    across = [
        gbs
        for pair, gbs in speeds.items()
        if not cluster_speeds.slow_nodes & set(pair) and len({of.get(node, node) for node in pair}) > 1
    ]
    fast, slow = f"{median(within):.0f} GB/s", f"{median(across):.0f}"
    if cluster_speeds.groups:
        each = "; ".join(names(nodes) for nodes in cluster_speeds.groups)
        return (
            f"pairs have two speeds, as within and across racks: {fast} within groups of nodes ({each}) and {slow}"
            f" across; say which rack each node is in"
        )
    few, many = cluster_speeds.sides
    return (
        f"pairs have two speeds: {fast} among {names(few)} and {slow} with {names(many)}; these are more than half,"
        f" so it is not said whether they are bad or the others are only nearer to each other"
    )


def names(nodes: Sequence[str]) -> str:
    """A few of them."""
    return text.named(nodes, MOST_NAMES)
