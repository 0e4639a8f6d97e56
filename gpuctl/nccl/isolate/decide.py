"""The next round of runs, or what those made have come to. It reads the history alone, so it can go on at any point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuctl.nccl.isolate import confirmation, launch_failures, pairing, rails, small_fleets, unknown_racks, verdict
from gpuctl.nccl.isolate.attribution import Explained, explain, looks_bad
from gpuctl.nccl.isolate.follow_up import Again, Good, again, crowded, ran_well
from gpuctl.nccl.isolate.launch_outcomes import CUT_OFF
from gpuctl.nccl.isolate.model import Conclusion, Doubt, Fleet, Guilt, Policy, Round
from gpuctl.nccl.isolate.observations import Seen, Story, story
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

    story: Story
    explained: Explained
    policy: Policy

    def launches(self, groups: Iterable[Sequence[str]]) -> tuple[Launch, ...]:
        return tuple(Launch(tuple(nodes), self.policy.sweep) for nodes in groups)


def decide(fleet: Fleet, history: Sequence[LaunchResult], policy: Policy | None = None) -> Round | Conclusion:
    """What to run next for a fleet of which these runs are known, or the verdict; the same for the same runs."""
    rules = policy or Policy()
    seen = story(fleet, history)
    if seen.cut_off:
        why = Doubt(tuple(sorted(seen.cut_off)), (), _contact(seen, history))
        return verdict.conclusion(seen, explain(seen, rules), (why,), rules)  # what was proved before still is
    if found := _unseen(seen, rules, rules.pairs_per_node) or _only_across(seen, rules):
        return found
    unexplained = bool(confirmation.unexplained(seen, rules))
    state = State(seen, explain(seen, _stricter(rules) if unexplained else rules), rules)
    if small_fleets.undecided(seen):
        return small_fleets.verdict(seen, state.explained, rules)
    if shared := _shared(state):
        more = small_fleets.next_round(seen, state.explained, rules) if state.explained.open else None
        more = more or unknown_racks.both_sides(seen, state.explained, rules)
        explained, unsure = unknown_racks.judged(seen, state.explained)
        return more or verdict.conclusion(seen, explained, (shared, *unsure), rules)
    if _none_ran(state):
        return _few_more(state) or _laid_on_nobody(state)
    following = again(seen, state.explained, rules)
    return _nodes_and_paths(state, following) or _the_rest(state, following.doubts, unexplained)


def _nodes_and_paths(state: State, following: Again) -> Round | None:
    """Runs that tell what a bad one came from."""
    seen, explained, rules = state.story, state.explained, state.policy
    step = _suspects(state, following) or small_fleets.meet_others(seen, explained, rules)
    if step is None and small_fleets.unclear(seen, explained, following.doubts):
        step = small_fleets.next_round(seen, explained, rules)
    return step or unknown_racks.both_sides(seen, explained, rules)


def _the_rest(state: State, doubts: Sequence[Doubt], unexplained: bool) -> Round | Conclusion:
    """What is left to do once the bad nodes are known: the confirmation, their adapters, the verdict."""
    seen, rules = state.story, state.policy
    explained, unsure = unknown_racks.judged(seen, state.explained)
    state, doubts = replace(state, explained=explained), (*doubts, *unsure)
    step = _confirmation(state, doubts)
    if step is None and unexplained:
        step = _unseen(seen, rules, rules.pairs_per_node + 1)
    return step or _adapters(state) or verdict.conclusion(seen, explained, doubts, rules)


def _stricter(policy: Policy) -> Policy:
    """Once the rest has failed together, a bad run is not so readily put down to chance."""
    return replace(policy, let_go=1.0)


def _unseen(seen: Story, policy: Policy, pairs_per_node: int) -> Round | None:
    """Pairs of the nodes that were in too few runs."""
    if len(seen.alive) < 2:
        return None
    for turn in range(pairs_per_node):
        due = [node for node in seen.alive if len(seen.tried.get(node, ())) <= turn]
        if len(due) > 1:
            pairs = pairing.pairs(due, seen.fleet.racks, turn)
            return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), _screening(turn, len(due), seen))
    return None


def _only_across(seen: Story, policy: Policy) -> Round | None:
    """The nodes of the only pair across racks, each within its rack where it can be: slower than others it may be
    for the way between racks, or for a node, and only within a rack is there something to compare a node with. The
    other one ran well, and is in no bad run where there is such a one."""
    run = next((run for run in seen.pairs if run.place == "across" and run.gbs is not None and not run.tells), None)
    if run is None or "within" not in seen.references:
        return None
    racks, good = seen.fleet.racks, ran_well(seen) - set(run.nodes)
    noise = explain(seen, policy).noise
    doubtful = {node for other in seen.pairs if looks_bad(other, noise, policy) for node in other.nodes}
    order = sorted((node for node in seen.alive if node in good), key=lambda node: node not in doubtful)
    pairs = []
    for node in run.nodes:
        mates = [other for other in order if racks.get(other) == racks[node]]
        if node in seen.alive and mates and all(each.place == "across" for each in seen.tried[node]):
            pairs.append((node, mates[-1]))
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), ONLY_ACROSS) if pairs else None


def _screening(turn: int, due: int, seen: Story) -> str:
    every = "every node" if due >= len(seen.alive) - 1 else f"{due} nodes not seen so far"
    return f"{every} in a pair" + (", with other partners than before" if turn else "")


def _left_over(seen: Story, busy: Iterable[str]) -> list[tuple[str, str]]:
    """The odd one out of the first round, with a near one that ran well; that one is in two pairs."""
    taken = set(busy)
    due = next((node for node in seen.alive if node not in seen.tried and node not in taken), None)
    if due is None:
        return []
    fine = ran_well(seen)
    at, places = seen.fleet.nodes.index(due), {node: number for number, node in enumerate(seen.fleet.nodes)}
    order = sorted(seen.alive, key=lambda node: (node not in fine, abs(places[node] - at)))
    partner = next((node for node in order if node not in taken and node != due), None)
    return [(due, partner)] if partner else []


def _suspects(state: State, following: Again) -> Round | None:
    """Whatever is open, the odd node out, and nodes that fell silent in the confirmation; then all pairs of a few."""
    pairs = [tuple(pair) for pair in following.pairs]
    odd = _left_over(state.story, (node for pair in pairs for node in pair))
    pairs += odd if not crowded([*pairs, *odd], state.story.fleet.racks) else []
    if not pairs:
        pairs = [tuple(pair) for pair in _hinted(state)]
    if pairs:
        return Round(state.launches(pairs), "suspects with nodes known to be good")
    if (following.doubts or state.story.untested) and len(state.story.alive) <= SMALL:
        return _every_pair(state)
    return None


def _hinted(state: State) -> list[tuple[str, str]]:
    good = Good(state.story, state.explained)
    bad = rails.nodes_of(state.explained.guilty)
    nodes = [
        n for n in confirmation.silent(state.story, confirmation.unexplained(state.story, state.policy)) if n not in bad
    ]
    lent = [(node, good.lend(node, lambda other: other not in nodes)) for node in nodes]
    return [(node, partner) for node, partner in lent if partner is not None]


def _every_pair(state: State) -> Round | None:
    """Pairs that were never run, among a few nodes of which none is known to be good."""
    found = small_fleets.not_run(state.story, state.story.alive)
    return Round(state.launches(found), "pairs not run so far, as no node is known to be good") if found else None


def _confirmation(state: State, doubts: Sequence[Doubt]) -> Round | None:
    left = confirmation.rest(state.story, state.explained.guilty, doubts, state.policy)
    if not left.due:
        return None
    out = len(state.story.fleet.nodes) - len(left.nodes)
    why = f"all but {out}, to confirm that the rest is well" if out else "all together, to confirm that they are well"
    return Round(state.launches([left.nodes]), why if not left.runs else f"once more: {why}")


def _adapters(state: State) -> Round | None:
    good = Good(state.story, state.explained)
    due = rails.due(state.story, state.explained.guilty, good, state.policy)
    launches = tuple(Launch(nodes, state.policy.sweep, rail) for nodes, rail in due)
    return Round(launches, "bad nodes over one adapter at a time") if launches else None


def _shared(state: State) -> Doubt | None:
    """Bad runs that are too many, or too alike, to be the fault of single nodes."""
    bad = [seen for seen, _ in state.explained.open]
    numbers = tuple(seen.number for seen in bad)
    never, begun = state.story.never, state.story.pairs
    closed = {*state.story.untested, *state.story.shut}
    if len(never) + len(begun) >= MANY and len(closed) * 2 > len(state.story.alive):
        return Doubt(tuple(seen.number for seen in never), (), _most_never(state.story))
    if len(state.story.pairs) >= MANY and len(bad) * 2 > len(state.story.pairs):
        return Doubt(numbers, (), _most(state.story, bad))
    return Doubt(numbers, (), TWO) if _two_speeds(state, bad) else None


def _two_speeds(state: State, bad: Sequence[Seen]) -> bool:
    """Whether many runs are slow by the same, where it is not known which nodes are in one rack."""
    slow = [seen.shortfall for seen in bad if seen.shortfall is not None]
    if small_fleets.racks_known(state.story) or len(slow) < max(TWO_SPEEDS, OF_ALL * len(state.story.pairs)):
        return False
    usual = median(slow)
    alike = sum(abs(gap - usual) < LIKE * usual for gap in slow)
    return alike >= max(TWO_SPEEDS, 0.7 * len(slow))


def _none_ran(state: State) -> bool:
    """Whether, of more than two nodes, no pair ever ran well: then nothing was seen that tells one from another."""
    tried = {frozenset(run.nodes) for run in state.story.pairs}
    well = any(run.gbs is not None for run in state.story.pairs)
    return not well and bool(state.explained.open or _not_lost(state.explained)) and len(tried) > 1


def _not_lost(explained: Explained) -> list[Guilt]:
    return [guilt for guilt in explained.guilty if not guilt.lost]


def _few_more(state: State) -> Round | None:
    """The odd one out, and of a few nodes every pair: one of them may yet run well."""
    pairs = _left_over(state.story, ())
    if pairs:
        return Round(state.launches(pairs), "the odd node out, with another")
    return _every_pair(state) if len(state.story.alive) <= SMALL else None


def _laid_on_nobody(state: State) -> Conclusion:
    """The verdict where no pair ran well: only what stopped answering is named."""
    lost = tuple(guilt for guilt in state.explained.guilty if guilt.lost)
    why = Doubt(tuple(run.number for run in state.story.pairs), (), NONE)
    return verdict.conclusion(state.story, replace(state.explained, guilty=lost), (why,), state.policy)


def _contact(seen: Story, history: Sequence[LaunchResult]) -> str:
    nodes = {node for number in seen.cut_off for node in history[number].launch.nodes}
    lost = {node for number in seen.cut_off for node in history[number].lost}
    return f"{len(lost)} of the {len(nodes)} nodes of one round gave no answer any more: {CUT_OFF}"


def _most_never(seen: Story) -> str:
    every = len(seen.never) + len(seen.pairs)
    return f"{len(seen.never)} of {every} launches never began: {launch_failures.whys(seen.never)}"


def _most(seen: Story, bad: Sequence[Seen]) -> str:
    failed = sum(bool(run.failed) for run in bad)
    return f"{len(bad)} of {len(seen.pairs)} pair runs are bad ({failed} failed): more than single nodes can explain"
