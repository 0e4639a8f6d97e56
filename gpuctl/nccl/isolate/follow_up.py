"""Which runs would clear up what stayed open: suspects with known-good nodes, the same pair again, other racks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.excluded_nodes import START_TRIES
from gpuctl.nccl.isolate.model import Cause, Kind, Policy, Unresolved
from gpuctl.nccl.isolate.observations import Evidence, Observation, last_never

NEAR = math.log(100)  # causes whose odds are this close to the best one's are still in question
WEAK = math.log(20)  # below these odds chance is so much likelier that one run of the same pair comes first
WRONG_REPEATS = (
    3  # runs of a pair that printed wrong values, and of each of its nodes with others, before it stays open
)
MOST_ACROSS = 2  # pairs at the same time over one uplink
Pair = tuple[str, ...]


@dataclass(frozen=True)
class FollowUp:
    """Pairs to run next, and what no further run can clear up."""

    pairs: tuple[Pair, ...]
    unresolved: tuple[Unresolved, ...]


class KnownGoodPool:
    """Nodes that ran well, still begin and are in nothing open; each is lent once a round, the least used first."""

    def __init__(self, evidence: Evidence, explained: Attribution) -> None:
        bad = {node for seen, _ in explained.open for node in seen.nodes}
        for fault in explained.faults:
            bad |= set(() if fault.cause.kind is Kind.UPLINK else spoilt(fault.cause, evidence))
        bad |= {*explained.masked, *evidence.excluded}
        self._doubtful = {node for seen in explained.chance for node in seen.nodes}
        self._cut_off = {g.cause.names[0] for g in explained.faults if g.cause.kind is Kind.UPLINK}
        self._evidence = evidence
        fine = ran_well(evidence)
        self._free = [node for node in evidence.alive if node in fine and node not in bad and not evidence.stalled]
        self._order = {node: number for number, node in enumerate(evidence.fleet.nodes)}

    def __len__(self) -> int:
        return len(self._free)

    def take(self, to: str, wanted: Callable[[str], bool]) -> str | None:
        """One of the wanted, that has not met this node where possible, near to it in the order of nodes."""
        met = {node for seen in self._evidence.launches_by_node.get(to, ()) for node in seen.nodes}
        free = (node for node in self._free if wanted(node) and not self._apart(node, to))
        best = min(free, key=lambda node: (node in met, *self._cost(node, to)), default=None)
        if best is not None:
            self._free.remove(best)
        return best

    def _cost(self, node: str, to: str) -> tuple[bool, int, int]:
        runs = len(self._evidence.launches_by_node.get(node, ()))
        return node in self._doubtful, runs, abs(self._order[node] - self._order[to])

    def _apart(self, node: str, other: str) -> bool:
        """Whether a run of both would go over an uplink that is known to be bad."""
        if not self._cut_off:
            return False
        racks = {self._evidence.fleet.racks.get(node), self._evidence.fleet.racks.get(other)}
        return len(racks) > 1 and not self._cut_off.isdisjoint(racks)

    def near(self, node: str) -> Callable[[str], bool]:
        """In the same rack, where there is a free one; anywhere else."""
        racks = self._evidence.fleet.racks
        same = {other for other in self._free if racks.get(other) == racks[node]} if node in racks else None
        return same.__contains__ if same else (lambda _: True)


def crowded(pairs: Iterable[Sequence[str]], racks: Mapping[str, str]) -> bool:
    """Whether pairs at the same time load an uplink more than the first round did, and so might be slow by that."""
    leaving: Counter[str] = Counter()
    for pair in pairs:
        found = {racks[node] for node in pair if node in racks}
        leaving.update(found if len(found) > 1 else ())
    return max(leaving.values(), default=0) > MOST_ACROSS


def ran_well(evidence: Evidence) -> set[str]:
    """Nodes of runs that can be compared; where none can, of any that ended well."""
    compared = {node for seen in evidence.pairs if seen.shortfall is not None for node in seen.nodes}
    return compared or {node for seen in evidence.pairs if seen.gbs is not None for node in seen.nodes}


def spoilt(cause: Cause, evidence: Evidence) -> Sequence[str]:
    """The nodes that are left out for a cause."""
    if cause.kind in (Kind.NODE, Kind.LINK):
        return cause.names
    return [node for node in evidence.fleet.nodes if evidence.fleet.racks.get(node) == cause.names[0]]


def plan_follow_up(evidence: Evidence, explained: Attribution, policy: Policy) -> FollowUp:
    """The next runs for everything open, the clearest suspects first; nobody is in two of them."""
    planning = _Planning(evidence, explained, policy)
    open_runs = sorted(explained.open, key=lambda item: (-max(item[1].values()), item[0].number))
    for seen, odds in open_runs:
        planning.look_into(seen, odds)
    planning.unmask(explained.masked)
    planning.unmask([node for node in evidence.untested if len(evidence.launches_by_node[node]) < START_TRIES])
    return FollowUp(tuple(planning.pairs), () if planning.pairs else _unresolved(open_runs, evidence, policy))


class _Planning:
    """Collects pairs; a node that is already in one waits for the next round."""

    def __init__(self, evidence: Evidence, explained: Attribution, policy: Policy) -> None:
        self.evidence, self.policy, self.good = evidence, policy, KnownGoodPool(evidence, explained)
        self.pairs: list[Pair] = []
        self._busy: set[str] = set()
        self._bad = frozenset(seen.number for seen, _ in explained.open)

    def look_into(self, seen: Observation, odds: Mapping[Cause, float]) -> None:
        """Add the runs that tell most about a bad one."""
        if self._busy.isdisjoint(seen.nodes) and not _worn_out(seen, self.evidence, self.policy):
            for pair in self._next(seen, odds):
                self._add(pair)

    def unmask(self, nodes: Sequence[str]) -> None:
        """Run nodes of which nothing is known with good ones."""
        left = [node for node in nodes if node not in self._busy and node not in self.evidence.excluded]
        for pair in _with_good(left, self.good):
            self._add(pair)

    def _add(self, pair: Pair) -> None:
        """Plan a pair, unless it would load an uplink more than the first round did: then it waits."""
        if crowded([*self.pairs, pair], self.evidence.fleet.racks):
            return
        self.pairs.append(pair)
        self._busy |= set(pair)

    def _next(self, seen: Observation, odds: Mapping[Cause, float]) -> Iterable[Pair]:
        top = max(odds.values())
        begin = [node for node in seen.nodes if node not in self.evidence.excluded]
        alone = [node for node in begin if not _others(node, seen, self.evidence)]
        if alone and top < WEAK and len(_launches(seen, self.evidence)) < 2:
            return [seen.nodes]
        if alone:
            return _with_good(alone, self.good)
        in_question = {cause for cause, value in odds.items() if value >= top - NEAR}
        uplinks = sorted(cause.names[0] for cause in in_question if cause.kind is Kind.UPLINK)
        uplinks = uplinks or self._behind_the_path(seen, in_question)
        if uplinks and (probes := list(_uplinks(uplinks, seen, self.evidence, self.good))):
            return probes
        if _over(seen, self.evidence):
            return ()
        return self._wrong(seen) if seen.wrong else self._pair_or_nodes(seen, in_question)

    def _wrong(self, seen: Observation) -> Iterable[Pair]:
        """The same pair again and its nodes with known-good ones by turns: wrong values are nobody's chance."""
        pair = len(_launches(seen, self.evidence)) - 1
        alone = {node: len(_others(node, seen, self.evidence)) for node in seen.nodes}
        if pair < WRONG_REPEATS and pair <= min(alone.values()):
            return [seen.nodes]
        few = [node for node in seen.nodes if alone[node] < WRONG_REPEATS]
        return list(_with_good(few, self.good)) or ([seen.nodes] if pair < WRONG_REPEATS else [])

    def _behind_the_path(self, seen: Observation, in_question: Set[Cause]) -> list[str]:
        """The racks of a path that was bad more than once: an uplink that comes and goes has to be ruled out, too."""
        same = [run for run in self.evidence.runs_by_node[seen.nodes[0]] if set(run.nodes) == set(seen.nodes)]
        bad = sum(run.number in self._bad for run in same)
        if seen.place != "across" or bad < 2 or Cause(Kind.LINK, tuple(sorted(seen.nodes))) not in in_question:
            return []
        by_rack = {
            rack: [run for run in self.evidence.runs_by_rack[rack] if run.place == "across"] for rack in seen.racks
        }
        return sorted(rack for rack, runs in by_rack.items() if len(runs) - len(same) <= len(same))

    def _pair_or_nodes(self, seen: Observation, in_question: Set[Cause]) -> Iterable[Pair]:
        """The same pair again, which asks about all at once, while it has been bad no more than once; else by turns.

        Where it did not begin the last time the nodes come first, as it may be one of them.
        """
        launches = _launches(seen, self.evidence)
        same = len(launches)
        suspects = [node for node in seen.nodes if Cause(Kind.NODE, (node,)) in in_question]
        fewest = min((len(_others(node, seen, self.evidence)) for node in suspects), default=same)
        link = Cause(Kind.LINK, tuple(sorted(seen.nodes)))
        once = len({run.number for node in seen.nodes for run in self.evidence.runs_by_node[node]} & self._bad) == 1
        if launches[-1].start_failure and any(
            self.evidence.launches_by_node[node][-1] is launches[-1] for node in seen.nodes
        ):
            return _with_good(seen.nodes, self.good)
        plan_follow_up = not suspects or (link in in_question and same <= fewest) or once
        return [seen.nodes] if plan_follow_up else _with_good(suspects, self.good)


def _others(node: str, seen: Observation, evidence: Evidence) -> list[Observation]:
    """The runs of a node with others than in this run."""
    return [s for s in evidence.runs_by_node[node] if set(s.nodes) != set(seen.nodes)]


def _launches(seen: Observation, evidence: Evidence) -> list[Observation]:
    """Those of the very nodes of a run, whether they began or not."""
    return [run for run in evidence.launches_by_node[seen.nodes[0]] if set(run.nodes) == set(seen.nodes)]


def _repeated(seen: Observation, evidence: Evidence) -> bool:
    """Whether a pair that printed wrong values was run again often enough, and so was each of its nodes with others."""
    pair = len(_launches(seen, evidence)) > WRONG_REPEATS
    return pair and all(len(_others(node, seen, evidence)) >= WRONG_REPEATS for node in seen.nodes)


def _over(seen: Observation, evidence: Evidence) -> bool:
    """Whether it cannot be run again: launches of its nodes, or of any, do not begin any more."""
    if evidence.stalled or not evidence.excluded.isdisjoint(seen.nodes):
        return True
    return len(last_never(_launches(seen, evidence))) >= START_TRIES


def _with_good(nodes: Sequence[str], good: KnownGoodPool) -> Iterator[Pair]:
    for node in nodes:
        partner = good.take(node, good.near(node))
        if partner is not None:
            yield node, partner


def _uplinks(
    racks_in_question: Sequence[str], seen: Observation, evidence: Evidence, good: KnownGoodPool
) -> Iterator[Pair]:
    """Another node of the rack with one of a third rack: slow again if it is the uplink, whatever the nodes are."""
    racks = evidence.fleet.racks
    for own in racks_in_question:
        if len(last_never(evidence.launches_across[own])) >= START_TRIES:
            continue
        inside = good.take(seen.nodes[0], partial(_in_rack, racks, own))
        if inside is None:
            continue
        outside = good.take(inside, lambda node: node in racks and racks[node] not in seen.racks)
        if outside is not None:
            yield inside, outside


def _in_rack(racks: Mapping[str, str], rack: str, node: str) -> bool:
    return racks.get(node) == rack


def _worn_out(seen: Observation, evidence: Evidence, policy: Policy) -> bool:
    if seen.wrong and _repeated(seen, evidence):
        return True
    return any(len(evidence.launches_by_node[node]) >= policy.most for node in seen.nodes)


def _unresolved(
    open_runs: Sequence[tuple[Observation, Mapping[Cause, float]]], evidence: Evidence, policy: Policy
) -> tuple[Unresolved, ...]:
    """What stayed open, once for each pair."""
    found: dict[frozenset[str], Unresolved] = {}
    for seen, odds in open_runs:
        open_case = _open_case(seen, odds, evidence, policy)
        same = found.get(frozenset(seen.nodes))
        found[frozenset(seen.nodes)] = open_case if same is None else replace(same, runs=same.runs + open_case.runs)
    return tuple(found.values())


def _open_case(seen: Observation, odds: Mapping[Cause, float], evidence: Evidence, policy: Policy) -> Unresolved:
    top = max(odds.values())
    near = {cause for cause, value in odds.items() if value >= top - NEAR}
    if any(cause.kind is Kind.LINK for cause in near):  # an uplink that comes and goes looks like the path
        near |= {cause for cause in odds if cause.kind is Kind.UPLINK}
    may_be = sorted(near, key=lambda c: (-odds[c], c.kind, c.names))
    why = "no node is left that is known to be good and could be run with them"
    if seen.wrong and _repeated(seen, evidence):
        why = f"{WRONG_REPEATS} more runs of the pair and of each of the two with others did not settle it"
    elif _worn_out(seen, evidence, policy):
        why = f"{policy.most} runs of them did not settle it"
    if _over(seen, evidence):
        why = "launches to settle it did not begin any more"
    return Unresolved((seen.number,), tuple(may_be), why)
