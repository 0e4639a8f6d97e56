"""Decide the next round of runs, or the verdict. Only the history counts, so an isolation can resume at any point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuctl.nccl.isolate import confirmation, pairing, rails, small_fleets, unknown_racks, verdict
from gpuctl.nccl.isolate.attribution import Attribution, attribute, looks_bad
from gpuctl.nccl.isolate.controls import repeated, with_controls
from gpuctl.nccl.isolate.follow_up import FollowUp, KnownGoodPool, crowded, plan_follow_up, ran_well
from gpuctl.nccl.isolate.launch_failures import CUT_OFF
from gpuctl.nccl.isolate.model import Conclusion, Fault, Fleet, Policy, Round, Unresolved
from gpuctl.nccl.isolate.observations import FEW_NODES, Evidence, Observation, observe
from gpuctl.nccl.isolate.start_findings import reasons
from gpuctl.nccl.model import Launch, LaunchResult

SMALL = 4  # largest number of nodes of which every pair is tried if none is known to be good
MANY = 8  # fewest runs of which "most of them are bad" is meaningful
TOGETHER = 3  # slow pairs of nodes that are fast with others: more than paths between two nodes are bad at a time
TWO_SPEEDS, LIKE = 5, 0.2  # so many runs whose shortfalls differ by less than this share are a second speed
MORE_TURNS = 3  # so often every node is run with others where one pair for each node does not tell
FLAPPED_TURNS = 5  # the same, where runs of all nodes show a fault that no pair shows so far
MINORITY = 0.3  # share of slow pairs up to which more runs show whether nodes or racks are the reason
NONE = "no pair of nodes ever ran well: more than single nodes can explain"
ONLY_ACROSS = "the only pair across racks is slower than those within: each of its nodes within its own rack"
TWO = "many runs are slow by the same amount: two speeds, as within and across racks; set the racks of the nodes"


@dataclass(frozen=True)
class State:
    """The evidence at one point of an isolation, and its attribution to causes."""

    evidence: Evidence
    attribution: Attribution
    policy: Policy

    def launches(self, groups: Iterable[Sequence[str]]) -> tuple[Launch, ...]:
        return tuple(Launch(tuple(nodes), self.policy.sweep) for nodes in groups)


def decide(fleet: Fleet, history: Sequence[LaunchResult], policy: Policy | None = None) -> Round | Conclusion:
    """The next round for a fleet with this history, or the conclusion. Deterministic."""
    rules = policy or Policy()
    evidence = observe(fleet, history)
    attribution = attribute(evidence, rules)
    step = _next(evidence, attribution, rules)
    return step if isinstance(step, Conclusion) else with_controls(step, evidence, attribution, rules)


def _next(evidence: Evidence, attribution: Attribution, rules: Policy) -> Round | Conclusion:
    if evidence.contact_lost:
        why = Unresolved(tuple(sorted(evidence.contact_lost)), (), _contact(evidence, evidence.history))
        # Faults that were proved before remain proved.
        return verdict.conclusion(evidence, attribution, (why,), rules)
    if step := _unpaired(evidence, rules, rules.pairs_per_node) or _only_across(evidence, attribution, rules):
        return step
    unexplained = confirmation.unexplained(evidence, rules)
    flapped = confirmation.came_back_fine(evidence, attribution.faults, rules)
    strict = bool(unexplained) or flapped
    if strict:
        bad_groups = confirmation.bad_groups(evidence, rules)
        attribution = attribute(evidence, _stricter(rules), bad_groups)
    state = State(evidence, attribution, rules)
    if small_fleets.undecided(evidence):
        return small_fleets.undecided_conclusion(evidence, state.attribution, rules)
    if shared := _shared(state):
        return _of_several(state, shared)
    if _none_ran(state):
        return _few_more(state) or _only_lost_nodes(state)
    following = plan_follow_up(evidence, state.attribution, rules)
    return _nodes_and_paths(state, following) or _the_rest(state, following.unresolved, unexplained)


def _of_several(state: State, shared: Unresolved) -> Round | Conclusion:
    """More runs while they can tell bad nodes from racks, or the conclusion if they cannot."""
    evidence, rules = state.evidence, state.policy
    more = _another_turn(state, shared)
    if more is None and state.attribution.open:
        more = small_fleets.next_round(evidence, state.attribution, rules)
    more = more or unknown_racks.next_round(evidence, state.attribution, rules)
    together = _slow_together(state, [run for run, _ in state.attribution.open])
    effect = max((run.shortfall or 0.0 for run in together), default=0.0)
    attribution, unsure = unknown_racks.without_rack_effects(evidence, state.attribution, effect)
    return more or verdict.conclusion(evidence, attribution, (shared, *unsure), rules)


def _nodes_and_paths(state: State, following: FollowUp) -> Round | None:
    """Runs that show the cause of a bad run."""
    evidence, attribution, rules = state.evidence, state.attribution, state.policy
    step = _suspects(state, following) or small_fleets.meet_others(evidence, attribution, rules)
    if step is None and small_fleets.unclear(evidence, attribution, following.unresolved):
        step = small_fleets.next_round(evidence, attribution, rules)
    return step or unknown_racks.next_round(evidence, attribution, rules)


def _the_rest(state: State, unresolved: Sequence[Unresolved], unexplained: Sequence[Observation]) -> Round | Conclusion:
    """The last steps, once the bad nodes are known: the confirmation, their adapters, the verdict.

    Racks that are not known slow all nodes together, too: more pairs would only show the racks.
    """
    evidence, rules = state.evidence, state.policy
    attribution, unsure = unknown_racks.without_rack_effects(evidence, state.attribution)
    state, unresolved = replace(state, attribution=attribution), (*unresolved, *unsure)
    step = _confirmation(state, unresolved)
    flapped = confirmation.came_back_fine(evidence, attribution.faults, rules)
    if step is None and (unexplained or flapped):
        several = flapped or small_fleets.racks_known(evidence) or any(run.failed for run in unexplained)
        step = _unpaired(evidence, rules, rules.pairs_per_node + (FLAPPED_TURNS if several else 1))
    return step or _adapters(state) or verdict.conclusion(evidence, attribution, unresolved, rules)


def _stricter(policy: Policy) -> Policy:
    """The policy after the confirmation failed: a bad run is less readily put down to chance."""
    return replace(policy, let_go=1.0, let_go_mild=1.0)


def _unpaired(evidence: Evidence, policy: Policy, pairs_per_node: int) -> Round | None:
    """Pairs of the nodes that were in fewer pairs than required."""
    if len(evidence.alive) < 2:
        return None
    racks = evidence.fleet.racks
    for turn in range(pairs_per_node):
        due = [node for node in evidence.alive if len(evidence.launches_by_node.get(node, ())) <= turn]
        if len(due) > 1:
            again = repeated(due, turn, evidence) if turn else []
            others = [node for node in due if not any(node in pair for pair in again)]
            met = {frozenset(run.nodes) for run in evidence.runs if run.pair}
            pairs = [*pairing.strangers(pairing.pairs(others, racks, turn), met, racks), *again]
            return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), _screening(turn, len(due), evidence))
    return None


def _only_across(evidence: Evidence, attribution: Attribution, policy: Policy) -> Round | None:
    """The nodes of the only pair across racks, each with a partner from its own rack.

    The pair may be slow because of the path between the racks or because of a node, and a node can only be compared
    within its rack. The partner ran well, and preferably is in no bad run.
    """
    run = next(
        (run for run in evidence.pairs if run.place == "across" and run.gbs is not None and not run.informative), None
    )
    if run is None or "within" not in evidence.references:
        return None
    racks, good = evidence.fleet.racks, ran_well(evidence) - set(run.nodes)
    in_bad_runs = {
        node for other in evidence.pairs if looks_bad(other, attribution.noise, policy) for node in other.nodes
    }
    order = sorted((node for node in evidence.alive if node in good), key=lambda node: node not in in_bad_runs)
    pairs = []
    for node in run.nodes:
        mates = [other for other in order if racks.get(other) == racks[node]]
        if (
            node in evidence.alive
            and mates
            and all(launch.place == "across" for launch in evidence.launches_by_node[node])
        ):
            pairs.append((node, mates[-1]))
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), ONLY_ACROSS) if pairs else None


def _screening(turn: int, due: int, evidence: Evidence) -> str:
    every = "every node" if due >= len(evidence.alive) - 1 else f"{due} nodes not tested so far"
    return f"{every} in a pair" + (", with other partners than before" if turn else "")


def _left_over(evidence: Evidence, busy: Iterable[str]) -> list[tuple[str, str]]:
    """The odd node of the first round, with a near one that ran well, which is then in two pairs."""
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
    """Open suspects, the odd node, and nodes that fell silent in the confirmation; then, in small fleets, all pairs."""
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
    good = KnownGoodPool(state.evidence, state.attribution)
    bad = rails.nodes_of(state.attribution.faults)
    nodes = [
        n
        for n in confirmation.silent(state.evidence, confirmation.unexplained(state.evidence, state.policy))
        if n not in bad
    ]
    lent = [(node, good.take(node, lambda other: other not in nodes)) for node in nodes]
    return [(node, partner) for node, partner in lent if partner is not None]


def _every_pair(state: State) -> Round | None:
    """Pairs that were never run, in a small fleet without a node known to be good."""
    pairs = small_fleets.not_run(state.evidence, state.evidence.alive)
    return Round(state.launches(pairs), "pairs not run so far, as no node is known to be good") if pairs else None


def _confirmation(state: State, unresolved: Sequence[Unresolved]) -> Round | None:
    rest = confirmation.confirmation(state.evidence, state.attribution.faults, unresolved, state.policy)
    if not rest.due:
        return None
    out = len(state.evidence.fleet.nodes) - len(rest.nodes)
    why = f"all but {out}, to confirm that the rest is fine" if out else "all together, to confirm that they are fine"
    return Round(state.launches([rest.nodes]), why if not rest.runs else f"once more: {why}")


def _adapters(state: State) -> Round | None:
    good = KnownGoodPool(state.evidence, state.attribution)
    due = rails.due(state.evidence, state.attribution.faults, good, state.policy)
    launches = tuple(Launch(nodes, state.policy.sweep, rail) for nodes, rail in due)
    return Round(launches, "bad nodes over one adapter at a time") if launches else None


def _shared(state: State) -> Unresolved | None:
    """Bad runs that are too many, or too alike, to be caused by single nodes."""
    bad = [run for run, _ in state.attribution.open]
    numbers = tuple(run.number for run in bad)
    failed, started = state.evidence.failed_starts, state.evidence.pairs
    unusable = {*state.evidence.untested, *state.evidence.excluded}
    if len(failed) + len(started) >= MANY and len(unusable) * 2 > len(state.evidence.alive):
        return Unresolved(tuple(run.number for run in failed), (), _most_not_started(state.evidence))
    if len(started) >= MANY and len(bad) * 2 > len(started):
        return Unresolved(numbers, (), _most_bad(state.evidence, bad))
    return Unresolved(numbers, (), TWO) if _two_speeds(state, bad) else None


def _two_speeds(state: State, bad: Sequence[Observation]) -> bool:
    """True if racks that are not known explain the slow runs as well as nodes do.

    Either many runs are slow by the same amount, or pairs are slow of which both nodes are fast with others.
    """
    if not small_fleets.racks_known(state.evidence) and len(_slow_together(state, bad)) >= TOGETHER:
        return True
    slow = [run.shortfall for run in bad if run.shortfall is not None]
    if small_fleets.racks_known(state.evidence) or len(slow) < max(TWO_SPEEDS, MINORITY * len(state.evidence.pairs)):
        return False
    usual = median(slow)
    alike = sum(abs(gap - usual) < LIKE * usual for gap in slow)
    return alike >= max(TWO_SPEEDS, 0.7 * len(slow))


def _slow_together(state: State, bad: Sequence[Observation]) -> list[Observation]:
    """Slow runs, no two of which share a node, of nodes that ran well with others; none in small fleets.

    Small fleets run every pair instead.
    """
    evidence = state.evidence
    if len(evidence.alive) <= FEW_NODES:
        return []
    fine = {
        node
        for run in evidence.pairs
        if run.shortfall is not None and run.shortfall < state.policy.least_gap
        for node in run.nodes
    }
    runs, busy = [], set[str]()
    for run in bad:
        if run.shortfall is not None and fine.issuperset(run.nodes) and busy.isdisjoint(run.nodes):
            runs.append(run)
            busy |= set(run.nodes)
    return runs


def _another_turn(state: State, shared: Unresolved) -> Round | None:
    """All nodes with other partners, where racks are not known and many, but not most, pairs have a second speed.

    A bad node stays slow; a healthy one becomes fast, and clears its partners. None for small fleets, which run every
    pair instead, and once pairs are slow of which both nodes are fast with others: only racks explain these.
    """
    bad = [run for run, _ in state.attribution.open]
    if shared.why != TWO or len(state.evidence.alive) <= FEW_NODES or state.evidence.stalled:
        return None
    if len(_slow_together(state, bad)) >= TOGETHER or any(run.failed for run in bad):
        return None
    return _unpaired(state.evidence, state.policy, state.policy.pairs_per_node + MORE_TURNS)


def _none_ran(state: State) -> bool:
    """True if no pair ever ran well among more than two nodes: then no node can be judged."""
    tried = {frozenset(run.nodes) for run in state.evidence.pairs}
    well = any(run.gbs is not None for run in state.evidence.pairs)
    return not well and bool(state.attribution.open or _not_lost(state.attribution)) and len(tried) > 1


def _not_lost(attribution: Attribution) -> list[Fault]:
    return [fault for fault in attribution.faults if not fault.lost]


def _few_more(state: State) -> Round | None:
    """The odd node, and every pair of a small fleet: one of them may still run well."""
    pairs = _left_over(state.evidence, ())
    if pairs:
        return Round(state.launches(pairs), "the odd node, with another")
    return _every_pair(state) if len(state.evidence.alive) <= SMALL else None


def _only_lost_nodes(state: State) -> Conclusion:
    """The conclusion if no pair ran well: only nodes that stopped answering are named."""
    lost = tuple(fault for fault in state.attribution.faults if fault.lost)
    why = Unresolved(tuple(run.number for run in state.evidence.pairs), (), NONE)
    return verdict.conclusion(state.evidence, replace(state.attribution, faults=lost), (why,), state.policy)


def _contact(evidence: Evidence, history: Sequence[LaunchResult]) -> str:
    nodes = {node for number in evidence.contact_lost for node in history[number].launch.nodes}
    lost = {node for number in evidence.contact_lost for node in history[number].lost}
    return f"{len(lost)} of the {len(nodes)} nodes of one round stopped answering: {CUT_OFF}"


def _most_not_started(evidence: Evidence) -> str:
    failed = evidence.failed_starts
    return f"{len(failed)} of {len(failed) + len(evidence.pairs)} launches never started: {reasons(failed)}"


def _most_bad(evidence: Evidence, bad: Sequence[Observation]) -> str:
    failed = sum(bool(run.failed) for run in bad)
    return (
        f"{len(bad)} of {len(evidence.pairs)} pair runs are bad ({failed} failed): more than single nodes can explain"
    )
