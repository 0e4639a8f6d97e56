"""Plan the runs that resolve open suspicions: suspects with known-good nodes, the same pair again, other racks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from gpuctl.nccl.isolate.attribution import Attribution
from gpuctl.nccl.isolate.launch_failures import START_TRIES
from gpuctl.nccl.isolate.model import Cause, Kind, Policy, Unresolved
from gpuctl.nccl.isolate.observations import Evidence, Observation
from gpuctl.nccl.isolate.start_findings import failed_starts_since

NEAR = math.log(100)  # causes whose odds are this close to the best are still possible
WEAK = math.log(20)  # below these odds chance is so likely that the same pair is repeated first
WRONG_REPEATS, WRONG_OTHERS = 3, 6  # runs of a pair that printed wrong values, and of each of its nodes with others
FEWEST_NODES = 8  # up to so many nodes, partners of suspects leave a control whole; above, controls are left anyway
MOST_ACROSS = 2  # simultaneous pairs over one uplink
Pair = tuple[str, ...]


@dataclass(frozen=True)
class FollowUp:
    """Pairs to run next, and what no further run can resolve."""

    pairs: tuple[Pair, ...]
    unresolved: tuple[Unresolved, ...]


class KnownGoodPool:
    """Nodes that ran well, still start and are in no open run; each serves once a round, the least used first."""

    def __init__(self, evidence: Evidence, attribution: Attribution) -> None:
        self._doubtful = {node for run in attribution.chance for node in run.nodes}
        self._cut_off = {g.cause.names[0] for g in attribution.faults if g.cause.kind is Kind.UPLINK}
        self._evidence = evidence
        good = known_good(evidence, attribution)
        steady = [run.nodes for run in evidence.pairs if evidence.is_steady(run) and good.issuperset(run.nodes)]
        self._controls = [pair for pair in dict.fromkeys(steady) if len(evidence.alive) <= FEWEST_NODES]
        self._free = [node for node in evidence.alive if node in good]
        self._order = {node: number for number, node in enumerate(evidence.fleet.nodes)}

    def __len__(self) -> int:
        return len(self._free)

    def take(self, partner_of: str, suitable: Callable[[str], bool]) -> str | None:
        """A suitable node to run with another: preferably one it has not met, near it in the order of nodes.

        None if no such node is free.
        """
        met = {node for run in self._evidence.launches_by_node.get(partner_of, ()) for node in run.nodes}
        free = (node for node in self._free if suitable(node) and not self._is_cut_off(node, partner_of))
        racks = self._evidence.fleet.racks
        best = min(
            free,
            key=lambda node: (node in met, racks.get(node) != racks.get(partner_of), *self._cost(node, partner_of)),
            default=None,
        )
        if best is not None:
            self._free.remove(best)
        return best

    def _cost(self, node: str, partner_of: str) -> tuple[bool, bool, int, int]:
        runs = len(self._evidence.launches_by_node.get(node, ()))
        near = abs(self._order[node] - self._order[partner_of])
        return node in self._doubtful, self._is_in_control(node), runs, near

    def _is_in_control(self, node: str) -> bool:
        """True if, in a small fleet, the node's pair could still be a control of this round."""
        return any(node in pair and set(pair) <= set(self._free) for pair in self._controls)

    def _is_cut_off(self, node: str, other: str) -> bool:
        """True if a run of both would go over an uplink that is known to be bad."""
        if not self._cut_off:
            return False
        racks = {self._evidence.fleet.racks.get(node), self._evidence.fleet.racks.get(other)}
        return len(racks) > 1 and not self._cut_off.isdisjoint(racks)

    def near(self, node: str) -> Callable[[str], bool]:
        """A test for nodes of the same rack, if one of these is free; otherwise for any node."""
        racks = self._evidence.fleet.racks
        same = {other for other in self._free if racks.get(other) == racks[node]} if node in racks else None
        return same.__contains__ if same else (lambda _: True)


def known_good(evidence: Evidence, attribution: Attribution) -> frozenset[str]:
    """Nodes that ran well, still start and are in no open run."""
    if evidence.stalled:
        return frozenset()
    bad = {node for run, _ in attribution.open for node in run.nodes}
    for fault in attribution.faults:
        bad |= set(() if fault.cause.kind is Kind.UPLINK else spoilt(fault.cause, evidence))
    return frozenset(evidence.alive) & ran_well(evidence) - bad - {*attribution.masked, *evidence.excluded}


def crowded(pairs: Iterable[Sequence[str]], racks: Mapping[str, str]) -> bool:
    """True if simultaneous pairs load an uplink more than the first round did, which may make them slow."""
    leaving: Counter[str] = Counter()
    for pair in pairs:
        pair_racks = {racks[node] for node in pair if node in racks}
        leaving.update(pair_racks if len(pair_racks) > 1 else ())
    return max(leaving.values(), default=0) > MOST_ACROSS


def ran_well(evidence: Evidence) -> set[str]:
    """Nodes of runs that can be compared; if no run can, nodes of all runs that completed."""
    compared = {node for run in evidence.pairs if run.shortfall is not None for node in run.nodes}
    return compared or {node for run in evidence.pairs if run.gbs is not None for node in run.nodes}


def spoilt(cause: Cause, evidence: Evidence) -> Sequence[str]:
    """The nodes that a cause excludes from other runs."""
    if cause.kind in (Kind.NODE, Kind.LINK):
        return cause.names
    return [node for node in evidence.fleet.nodes if evidence.fleet.racks.get(node) == cause.names[0]]


def plan_follow_up(evidence: Evidence, attribution: Attribution, policy: Policy) -> FollowUp:
    """The next runs for all open suspects, the clearest first; no node is in two of them."""
    planning = _Planning(evidence, attribution, policy)
    open_runs = sorted(attribution.open, key=lambda item: (-max(item[1].values()), item[0].number))
    for suspect, odds in open_runs:
        planning.look_into(suspect, odds)
    planning.unmask(attribution.masked)
    planning.unmask([node for node in evidence.untested if len(evidence.launches_by_node[node]) < START_TRIES])
    return FollowUp(tuple(planning.pairs), () if planning.pairs else _unresolved(open_runs, evidence, policy))


class _Planning:
    """Collects disjoint pairs; a node that is already in one waits for the next round."""

    def __init__(self, evidence: Evidence, attribution: Attribution, policy: Policy) -> None:
        self.evidence, self.policy, self.good = evidence, policy, KnownGoodPool(evidence, attribution)
        self.pairs: list[Pair] = []
        self._busy: set[str] = set()
        self._bad = frozenset(run.number for run, _ in attribution.open)

    def look_into(self, suspect: Observation, odds: Mapping[Cause, float]) -> None:
        """Add the most informative runs about a bad one."""
        if self._busy.isdisjoint(suspect.nodes) and not _worn_out(suspect, self.evidence, self.policy):
            for pair in self._next(suspect, odds):
                self._add(pair)

    def unmask(self, nodes: Sequence[str]) -> None:
        """Add runs of nodes about which nothing is known, with known-good ones."""
        left = [node for node in nodes if node not in self._busy and node not in self.evidence.excluded]
        for pair in _with_good(left, self.good):
            self._add(pair)

    def _add(self, pair: Pair) -> None:
        """Add a pair, unless it would load an uplink more than the first round did: then it waits."""
        if crowded([*self.pairs, pair], self.evidence.fleet.racks):
            return
        self.pairs.append(pair)
        self._busy |= set(pair)

    def _next(self, suspect: Observation, odds: Mapping[Cause, float]) -> Iterable[Pair]:
        top = max(odds.values())
        usable = [node for node in suspect.nodes if node not in self.evidence.excluded]
        only_here = [node for node in usable if not _others(node, suspect, self.evidence)]
        if only_here and top < WEAK and len(_launches(suspect, self.evidence)) < 2:
            return [suspect.nodes]
        if only_here:
            return _with_good(only_here, self.good)
        in_question = {cause for cause, value in odds.items() if value >= top - NEAR}
        uplinks = sorted(cause.names[0] for cause in in_question if cause.kind is Kind.UPLINK)
        uplinks = uplinks or self._behind_the_path(suspect, in_question)
        if uplinks and (probes := list(_uplinks(uplinks, suspect, self.evidence, self.good))):
            return probes
        racks = sorted(cause.names[0] for cause in in_question if cause.kind is Kind.RACK)
        if probes := [pair for rack in racks for pair in self._out_of(rack)]:
            return probes
        if _cannot_repeat(suspect, self.evidence):
            return ()
        return self._wrong(suspect) if suspect.wrong else self._pair_or_nodes(suspect, in_question)

    def _out_of(self, rack: str) -> Iterator[Pair]:
        """Two nodes of a rack that met no other rack so far, with good nodes of others: a good run clears the rack."""
        racks = self.evidence.fleet.racks
        inside = [node for node in self.evidence.alive if racks.get(node) == rack]
        due = [
            node
            for node in inside
            if node not in self._busy
            and node not in self.evidence.excluded
            and all(run.place == "within" for run in self.evidence.launches_by_node.get(node, ()))
        ]
        met = self.evidence.launches_by_node
        for node in sorted(due, key=lambda node: len(met.get(node, ())))[:MOST_ACROSS]:
            outside = self.good.take(node, lambda other: racks.get(other, rack) != rack)
            if outside is not None:
                yield node, outside

    def _wrong(self, suspect: Observation) -> Iterable[Pair]:
        """The same pair again, and its nodes with known-good ones, by turns: wrong values are never chance."""
        repeats = len(_launches(suspect, self.evidence)) - 1
        with_others = {node: len(_others(node, suspect, self.evidence)) for node in suspect.nodes}
        if repeats < WRONG_REPEATS and repeats <= min(with_others.values()):
            return [suspect.nodes]
        few = [node for node in suspect.nodes if with_others[node] < WRONG_OTHERS]
        return list(_with_others(few, self.good)) or ([suspect.nodes] if repeats < WRONG_REPEATS else [])

    def _behind_the_path(self, suspect: Observation, in_question: Set[Cause]) -> list[str]:
        """The racks of a path that was bad more than once: an intermittent uplink has to be ruled out, too."""
        same = [run for run in self.evidence.runs_by_node[suspect.nodes[0]] if set(run.nodes) == set(suspect.nodes)]
        bad = sum(run.number in self._bad for run in same)
        if suspect.place != "across" or bad < 2 or Cause(Kind.LINK, tuple(sorted(suspect.nodes))) not in in_question:
            return []
        by_rack = {
            rack: [run for run in self.evidence.runs_by_rack[rack] if run.place == "across"] for rack in suspect.racks
        }
        return sorted(rack for rack, runs in by_rack.items() if len(runs) - len(same) <= len(same))

    def _pair_or_nodes(self, suspect: Observation, in_question: Set[Cause]) -> Iterable[Pair]:
        """The same pair again, which tests all causes at once, while it was bad at most once; else by turns.

        If its last launch did not start, the nodes come first, as one of them may be the reason.
        """
        launches = _launches(suspect, self.evidence)
        link = Cause(Kind.LINK, tuple(sorted(suspect.nodes)))
        once = len({run.number for node in suspect.nodes for run in self.evidence.runs_by_node[node]} & self._bad) == 1
        if launches[-1].start_failure and any(
            self.evidence.launches_by_node[node][-1] is launches[-1] for node in suspect.nodes
        ):
            return _with_good(suspect.nodes, self.good)
        suspects = [node for node in suspect.nodes if Cause(Kind.NODE, (node,)) in in_question]
        elsewhere = [node for node in suspects if self._is_bad_elsewhere(node, suspect)]
        if elsewhere:  # the path alone does not explain that
            return list(_with_others(elsewhere, self.good)) or [suspect.nodes]
        if once or (not suspects and link not in in_question):
            return [suspect.nodes]
        # A run of each node with another tells as much as one of the pair; where the pair was fine, too, it tells more.
        nodes = suspects or suspect.nodes
        flaps = any(run.informative and run.number not in self._bad for run in launches)
        fewest = min(len(_others(node, suspect, self.evidence)) for node in nodes)
        if link in in_question and len(launches) * (2 if flaps else 1) <= fewest:
            return [suspect.nodes]
        return (
            list(_with_good(nodes, self.good)) if suspects else list(_with_others(nodes, self.good)) or [suspect.nodes]
        )

    def _is_bad_elsewhere(self, node: str, suspect: Observation) -> bool:
        return any(run.number in self._bad for run in _others(node, suspect, self.evidence))


def _others(node: str, suspect: Observation, evidence: Evidence) -> list[Observation]:
    """The runs of a node with other partners than in this run."""
    return [s for s in evidence.runs_by_node[node] if set(s.nodes) != set(suspect.nodes)]


def _launches(suspect: Observation, evidence: Evidence) -> list[Observation]:
    """The launches of exactly the nodes of a run, failed starts included."""
    return [run for run in evidence.launches_by_node[suspect.nodes[0]] if set(run.nodes) == set(suspect.nodes)]


def _repeated(suspect: Observation, evidence: Evidence) -> bool:
    """True if a pair with wrong values was repeated often enough, and so was each of its nodes with others."""
    pair = len(_launches(suspect, evidence)) > WRONG_REPEATS
    return pair and all(len(_others(node, suspect, evidence)) >= WRONG_OTHERS for node in suspect.nodes)


def _cannot_repeat(suspect: Observation, evidence: Evidence) -> bool:
    """True if launches of its nodes, or of any, no longer start."""
    if evidence.stalled or not evidence.excluded.isdisjoint(suspect.nodes):
        return True
    return len(failed_starts_since(_launches(suspect, evidence))) >= START_TRIES


def _with_good(nodes: Sequence[str], good: KnownGoodPool) -> Iterator[Pair]:
    for node in nodes:
        partner = good.take(node, good.near(node))
        if partner is not None:
            yield node, partner


def _with_others(nodes: Sequence[str], good: KnownGoodPool) -> Iterator[Pair]:
    """Nodes with good ones of any rack: each new partner is one more that does not explain their bad runs."""
    for node in nodes:
        partner = good.take(node, lambda _: True)
        if partner is not None:
            yield node, partner


def _uplinks(
    racks_in_question: Sequence[str], suspect: Observation, evidence: Evidence, good: KnownGoodPool
) -> Iterator[Pair]:
    """Another node of the rack with one of a third rack: slow again only if the uplink is bad."""
    racks = evidence.fleet.racks
    for rack in racks_in_question:
        if len(failed_starts_since(evidence.launches_across[rack])) >= START_TRIES:
            continue
        inside = good.take(suspect.nodes[0], partial(_in_rack, racks, rack))
        if inside is None:
            continue
        outside = good.take(inside, lambda node: node in racks and racks[node] not in suspect.racks)
        if outside is not None:
            yield inside, outside


def _in_rack(racks: Mapping[str, str], rack: str, node: str) -> bool:
    return racks.get(node) == rack


def _worn_out(suspect: Observation, evidence: Evidence, policy: Policy) -> bool:
    if suspect.wrong and _repeated(suspect, evidence):
        return True
    return any(len(evidence.launches_by_node[node]) >= policy.most for node in suspect.nodes)


def _unresolved(
    open_runs: Sequence[tuple[Observation, Mapping[Cause, float]]], evidence: Evidence, policy: Policy
) -> tuple[Unresolved, ...]:
    """The open runs, one entry for each pair."""
    by_pair: dict[frozenset[str], Unresolved] = {}
    for suspect, odds in open_runs:
        open_case = _open_case(suspect, odds, evidence, policy)
        same = by_pair.get(frozenset(suspect.nodes))
        by_pair[frozenset(suspect.nodes)] = (
            open_case if same is None else replace(same, runs=same.runs + open_case.runs)
        )
    return tuple(by_pair.values())


def _open_case(suspect: Observation, odds: Mapping[Cause, float], evidence: Evidence, policy: Policy) -> Unresolved:
    top = max(odds.values())
    near = {cause for cause, value in odds.items() if value >= top - NEAR}
    if any(cause.kind is Kind.LINK for cause in near):  # an intermittent uplink looks like the path
        near |= {cause for cause in odds if cause.kind is Kind.UPLINK}
    may_be = sorted(near, key=lambda c: (-odds[c], c.kind, c.names))
    why = "no node is left that is known to be good and could be run with them"
    if suspect.wrong and _repeated(suspect, evidence):
        why = (
            f"{WRONG_REPEATS} more runs of the pair and {WRONG_OTHERS} of each of the two with others did not settle it"
        )
    elif _worn_out(suspect, evidence, policy):
        why = f"{policy.most} runs of them did not settle it"
    if _cannot_repeat(suspect, evidence):
        why = "launches to settle it no longer started"
    return Unresolved((suspect.number,), tuple(may_be), why)
