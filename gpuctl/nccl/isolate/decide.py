"""The next round of runs, or what those made have come to. It reads the history alone, so it can go on at any point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuctl.nccl.isolate import confirmation, launch_failures, pairing, rails, small_fleets, unknown_racks, verdict
from gpuctl.nccl.isolate.attribution import Attribution, attribute, looks_bad
from gpuctl.nccl.isolate.follow_up import FollowUp, KnownGoodPool, crowded, plan_follow_up, ran_well
from gpuctl.nccl.isolate.launch_outcomes import CUT_OFF
from gpuctl.nccl.isolate.model import Conclusion, Fault, Fleet, Policy, Round, Unresolved
from gpuctl.nccl.isolate.observations import Evidence, Observation, observe
from gpuctl.nccl.model import Launch, LaunchResult

SMALL = 4  # nodes up to which every pair is tried where none is known to be good
MANY = 8  # runs, at least, before "most of them are bad" says anything
TWO_SPEEDS, LIKE = 5, 0.2  # so many runs alike to within this share of their shortfall are a second speed
OF_ALL = 0.08
NONE = "no pair of nodes ever ran well: more than single nodes can explain"
ONLY_ACROSS = "the only pair across racks is slower than those within: its nodes, each within its rack"
TWO = "many runs are slow by the same: two speeds, as within and across racks; say which rack each node is in"


@dataclass(frozen=True)
class State:
    """What is known at a point of an isolation."""

    evidence: Evidence
    explained: Attribution
    policy: Policy

    def launches(self, groups: Iterable[Sequence[str]]) -> tuple[Launch, ...]:
        return tuple(Launch(tuple(nodes), self.policy.sweep) for nodes in groups)


def decide(fleet: Fleet, history: Sequence[LaunchResult], policy: Policy | None = None) -> Round | Conclusion:
    """What to run next for a fleet of which these runs are known, or the verdict; the same for the same runs."""
    rules = policy or Policy()
    evidence = observe(fleet, history)
    if evidence.contact_lost:
        why = Unresolved(tuple(sorted(evidence.contact_lost)), (), _contact(evidence, history))
        return verdict.conclusion(
            evidence, attribute(evidence, rules), (why,), rules
        )  # what was proved before still is
    if found := _unseen(evidence, rules, rules.pairs_per_node) or _only_across(evidence, rules):
        return found
    unexplained = bool(confirmation.unexplained(evidence, rules))
    state = State(evidence, attribute(evidence, _stricter(rules) if unexplained else rules), rules)
    if small_fleets.undecided(evidence):
        return small_fleets.verdict(evidence, state.explained, rules)
    if shared := _shared(state):
        more = small_fleets.next_round(evidence, state.explained, rules) if state.explained.open else None
        more = more or unknown_racks.both_sides(evidence, state.explained, rules)
        explained, unsure = unknown_racks.judged(evidence, state.explained)
        return more or verdict.conclusion(evidence, explained, (shared, *unsure), rules)
    if _none_ran(state):
        return _few_more(state) or _laid_on_nobody(state)
    following = plan_follow_up(evidence, state.explained, rules)
    return _nodes_and_paths(state, following) or _the_rest(state, following.unresolved, unexplained)


def _nodes_and_paths(state: State, following: FollowUp) -> Round | None:
    """Runs that tell what a bad one came from."""
    evidence, explained, rules = state.evidence, state.explained, state.policy
    step = _suspects(state, following) or small_fleets.meet_others(evidence, explained, rules)
    if step is None and small_fleets.unclear(evidence, explained, following.unresolved):
        step = small_fleets.next_round(evidence, explained, rules)
    return step or unknown_racks.both_sides(evidence, explained, rules)


def _the_rest(state: State, unresolved: Sequence[Unresolved], unexplained: bool) -> Round | Conclusion:
    """What is left to do once the bad nodes are known: the confirmation, their adapters, the verdict."""
    evidence, rules = state.evidence, state.policy
    explained, unsure = unknown_racks.judged(evidence, state.explained)
    state, unresolved = replace(state, explained=explained), (*unresolved, *unsure)
    step = _confirmation(state, unresolved)
    if step is None and unexplained:
        step = _unseen(evidence, rules, rules.pairs_per_node + 1)
    return step or _adapters(state) or verdict.conclusion(evidence, explained, unresolved, rules)


def _stricter(policy: Policy) -> Policy:
    """Once the rest has failed together, a bad run is not so readily put down to chance."""
    return replace(policy, let_go=1.0)


def _unseen(evidence: Evidence, policy: Policy, pairs_per_node: int) -> Round | None:
    """Pairs of the nodes that were in too few runs."""
    if len(evidence.alive) < 2:
        return None
    for turn in range(pairs_per_node):
        due = [node for node in evidence.alive if len(evidence.launches_by_node.get(node, ())) <= turn]
        if len(due) > 1:
            pairs = pairing.pairs(due, evidence.fleet.racks, turn)
            return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), _screening(turn, len(due), evidence))
    return None


def _only_across(evidence: Evidence, policy: Policy) -> Round | None:
    """The nodes of the only pair across racks, each within its rack where it can be: slower than others it may be
    for the way between racks, or for a node, and only within a rack is there something to compare a node with. The
    other one ran well, and is in no bad run where there is such a one."""
    run = next(
        (run for run in evidence.pairs if run.place == "across" and run.gbs is not None and not run.informative), None
    )
    if run is None or "within" not in evidence.references:
        return None
    racks, good = evidence.fleet.racks, ran_well(evidence) - set(run.nodes)
    noise = attribute(evidence, policy).noise
    doubtful = {node for other in evidence.pairs if looks_bad(other, noise, policy) for node in other.nodes}
    order = sorted((node for node in evidence.alive if node in good), key=lambda node: node not in doubtful)
    pairs = []
    for node in run.nodes:
        mates = [other for other in order if racks.get(other) == racks[node]]
        if node in evidence.alive and mates and all(each.place == "across" for each in evidence.launches_by_node[node]):
            pairs.append((node, mates[-1]))
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), ONLY_ACROSS) if pairs else None


def _screening(turn: int, due: int, evidence: Evidence) -> str:
    every = "every node" if due >= len(evidence.alive) - 1 else f"{due} nodes not seen so far"
    return f"{every} in a pair" + (", with other partners than before" if turn else "")


def _left_over(evidence: Evidence, busy: Iterable[str]) -> list[tuple[str, str]]:
    """The odd one out of the first round, with a near one that ran well; that one is in two pairs."""
    taken = set(busy)
    due = next((node for node in evidence.alive if node not in evidence.launches_by_node and node not in taken), None)
    if due is None:
        return []
    fine = ran_well(evidence)
    at, places = evidence.fleet.nodes.index(due), {node: number for number, node in enumerate(evidence.fleet.nodes)}
    order = sorted(evidence.alive, key=lambda node: (node not in fine, abs(places[node] - at)))
    partner = next((node for node in order if node not in taken and node != due), None)
    return [(due, partner)] if partner else []


def _suspects(state: State, following: FollowUp) -> Round | None:
    """Whatever is open, the odd node out, and nodes that fell silent in the confirmation; then all pairs of a few."""
    pairs = [tuple(pair) for pair in following.pairs]
    odd = _left_over(state.evidence, (node for pair in pairs for node in pair))
    pairs += odd if not crowded([*pairs, *odd], state.evidence.fleet.racks) else []
    if not pairs:
        pairs = [tuple(pair) for pair in _hinted(state)]
    if pairs:
        return Round(state.launches(pairs), "suspects with nodes known to be good")
    if (following.unresolved or state.evidence.untested) and len(state.evidence.alive) <= SMALL:
        return _every_pair(state)
    return None


def _hinted(state: State) -> list[tuple[str, str]]:
    good = KnownGoodPool(state.evidence, state.explained)
    bad = rails.nodes_of(state.explained.faults)
    nodes = [
        n
        for n in confirmation.silent(state.evidence, confirmation.unexplained(state.evidence, state.policy))
        if n not in bad
    ]
    lent = [(node, good.take(node, lambda other: other not in nodes)) for node in nodes]
    return [(node, partner) for node, partner in lent if partner is not None]


def _every_pair(state: State) -> Round | None:
    """Pairs that were never run, among a few nodes of which none is known to be good."""
    found = small_fleets.not_run(state.evidence, state.evidence.alive)
    return Round(state.launches(found), "pairs not run so far, as no node is known to be good") if found else None


def _confirmation(state: State, unresolved: Sequence[Unresolved]) -> Round | None:
    left = confirmation.rest(state.evidence, state.explained.faults, unresolved, state.policy)
    if not left.due:
        return None
    out = len(state.evidence.fleet.nodes) - len(left.nodes)
    why = f"all but {out}, to confirm that the rest is well" if out else "all together, to confirm that they are well"
    return Round(state.launches([left.nodes]), why if not left.runs else f"once more: {why}")


def _adapters(state: State) -> Round | None:
    good = KnownGoodPool(state.evidence, state.explained)
    due = rails.due(state.evidence, state.explained.faults, good, state.policy)
    launches = tuple(Launch(nodes, state.policy.sweep, rail) for nodes, rail in due)
    return Round(launches, "bad nodes over one adapter at a time") if launches else None


def _shared(state: State) -> Unresolved | None:
    """Bad runs that are too many, or too alike, to be the fault of single nodes."""
    bad = [run for run, _ in state.explained.open]
    numbers = tuple(run.number for run in bad)
    never, begun = state.evidence.failed_starts, state.evidence.pairs
    closed = {*state.evidence.untested, *state.evidence.excluded}
    if len(never) + len(begun) >= MANY and len(closed) * 2 > len(state.evidence.alive):
        return Unresolved(tuple(run.number for run in never), (), _most_never(state.evidence))
    if len(state.evidence.pairs) >= MANY and len(bad) * 2 > len(state.evidence.pairs):
        return Unresolved(numbers, (), _most(state.evidence, bad))
    return Unresolved(numbers, (), TWO) if _two_speeds(state, bad) else None


def _two_speeds(state: State, bad: Sequence[Observation]) -> bool:
    """Whether many runs are slow by the same, where it is not known which nodes are in one rack."""
    slow = [run.shortfall for run in bad if run.shortfall is not None]
    if small_fleets.racks_known(state.evidence) or len(slow) < max(TWO_SPEEDS, OF_ALL * len(state.evidence.pairs)):
        return False
    usual = median(slow)
    alike = sum(abs(gap - usual) < LIKE * usual for gap in slow)
    return alike >= max(TWO_SPEEDS, 0.7 * len(slow))


def _none_ran(state: State) -> bool:
    """Whether, of more than two nodes, no pair ever ran well: then nothing was seen that tells one from another."""
    tried = {frozenset(run.nodes) for run in state.evidence.pairs}
    well = any(run.gbs is not None for run in state.evidence.pairs)
    return not well and bool(state.explained.open or _not_lost(state.explained)) and len(tried) > 1


def _not_lost(explained: Attribution) -> list[Fault]:
    return [fault for fault in explained.faults if not fault.lost]


def _few_more(state: State) -> Round | None:
    """The odd one out, and of a few nodes every pair: one of them may yet run well."""
    pairs = _left_over(state.evidence, ())
    if pairs:
        return Round(state.launches(pairs), "the odd node out, with another")
    return _every_pair(state) if len(state.evidence.alive) <= SMALL else None


def _laid_on_nobody(state: State) -> Conclusion:
    """The verdict where no pair ran well: only what stopped answering is named."""
    lost = tuple(fault for fault in state.explained.faults if fault.lost)
    why = Unresolved(tuple(run.number for run in state.evidence.pairs), (), NONE)
    return verdict.conclusion(state.evidence, replace(state.explained, faults=lost), (why,), state.policy)


def _contact(evidence: Evidence, history: Sequence[LaunchResult]) -> str:
    nodes = {node for number in evidence.contact_lost for node in history[number].launch.nodes}
    lost = {node for number in evidence.contact_lost for node in history[number].lost}
    return f"{len(lost)} of the {len(nodes)} nodes of one round gave no answer any more: {CUT_OFF}"


def _most_never(evidence: Evidence) -> str:
    every = len(evidence.failed_starts) + len(evidence.pairs)
    return (
        f"{len(evidence.failed_starts)} of {every} launches never began: {launch_failures.whys(evidence.failed_starts)}"
    )


def _most(evidence: Evidence, bad: Sequence[Observation]) -> str:
    failed = sum(bool(run.failed) for run in bad)
    return (
        f"{len(bad)} of {len(evidence.pairs)} pair runs are bad ({failed} failed): more than single nodes can explain"
    )
