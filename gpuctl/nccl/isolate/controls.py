"""Control pairs: pairs that are known to be good, run beside suspects to show how fast the fabric is in that round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.drift import MANY
from gpuctl.nccl.isolate.follow_up import Pair, crowded, known_good
from gpuctl.nccl.isolate.model import Policy, Round
from gpuctl.nccl.isolate.observations import Evidence, Observation, ordered
from gpuctl.nccl.model import Launch

NODES_PER_CONTROL = 8  # a round of all nodes repeats one pair for this many of them
NODES_PER_REPEATED, MOST_REPEATED = 4, 8  # the same for a round of other partners: several withstand a disturbed one
ENOUGH = 4 * MANY  # nodes of a round that needs no repeated pair
CONTROLS = 3  # for each place (within racks, across): the median of three withstands one disturbed run


def with_controls(step: Round, evidence: Evidence, attribution: Attribution, policy: Policy) -> Round:
    """The round with pairs that ran well before, of nodes that it leaves free.

    Unchanged if it tests no suspect, or is no round of pairs. The same pairs serve in every round if they can: what
    they measure is compared with their own earlier runs.
    """
    pairs = [launch.nodes for launch in step.launches if len(launch.nodes) == 2 and not launch.rail]
    suspected = bool(attribution.open or attribution.faults)
    if not suspected or len(pairs) < len(step.launches):
        return step
    chosen: list[Pair] = []
    for place in dict.fromkeys(evidence.place(nodes) for nodes in pairs):
        candidates = (run for run in _candidates(evidence, attribution, policy) if run.place == place)
        chosen += _disjoint(candidates, [*pairs, *chosen], evidence)
    return replace(step, launches=(*step.launches, *(Launch(tuple(pair), policy.sweep) for pair in chosen)))


def repeated(nodes: Sequence[str], turn: int, evidence: Evidence) -> list[Pair]:
    """Steady pairs to run again in a round of all these nodes, which leaves none free; others at each turn.

    None for many nodes, whose good pairs show the speed of the fabric by themselves, and for few, which soon run
    every pair.
    """
    if not NODES_PER_CONTROL < len(nodes) < ENOUGH:
        return []
    steady = dict.fromkeys(
        ordered(run.nodes) for run in evidence.pairs if evidence.is_steady(run) and set(nodes).issuperset(run.nodes)
    )
    within = [pair for pair in steady if evidence.place(pair) != "across"] or list(steady)
    count = min(len(nodes) // NODES_PER_REPEATED, MOST_REPEATED)
    first = turn * count % max(1, len(within))
    chosen: list[Pair] = []
    for pair in (*within[first:], *within[:first]):
        if len(chosen) < count and not {node for other in chosen for node in other} & set(pair):
            chosen.append(pair)
    return chosen


def _candidates(evidence: Evidence, attribution: Attribution, policy: Policy) -> list[Observation]:
    """The first run of each pair of known-good nodes, unless it was slow."""
    good = known_good(evidence, attribution)
    runs: dict[frozenset[str], Observation] = {}
    for run in evidence.pairs:
        if run.shortfall is not None and run.shortfall < policy.least_gap and good.issuperset(run.nodes):
            runs.setdefault(frozenset(run.nodes), run)
    return list(runs.values())


def _disjoint(candidates: Iterable[Observation], others: Iterable[Pair], evidence: Evidence) -> list[Pair]:
    busy, pairs = {node for pair in others for node in pair}, [*others]
    chosen: list[Pair] = []
    for run in candidates:
        if len(chosen) == CONTROLS:
            break
        if busy.isdisjoint(run.nodes) and not crowded([*pairs, run.nodes], evidence.fleet.racks):
            chosen.append(run.nodes)
            pairs.append(run.nodes)
            busy |= set(run.nodes)
    return chosen
