"""One adapter at a time: which of a bad node's adapters it is, or that it is not one adapter."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from gpuctl.nccl.isolate.follow_up import Good
from gpuctl.nccl.isolate.model import Guilt, Kind, Policy
from gpuctl.nccl.isolate.noise import Reference, reference
from gpuctl.nccl.isolate.observations import Seen, Story

Rail = tuple[tuple[str, ...], str]  # the pair, and the adapter that it is kept to


@dataclass(frozen=True)
class Adapters:
    """What the runs of single adapters of a node came to: name -> its bad and its other runs."""

    bad: dict[str, list[Seen]]
    fine: dict[str, list[Seen]]


def due(story: Story, guilty: Sequence[Guilt], good: Good, policy: Policy) -> list[Rail]:
    """The next runs on one adapter: a bad node with a good one, and where enough are left two good ones beside it.

    A node that hangs is left alone: every run of it would take as long as a hang may take.
    """
    found: list[Rail] = []
    names = nodes_of(guilty)
    for guilt in guilty:
        if guilt.cause.names[0] in story.shut:
            continue
        name = _next(story, guilt, names, policy)
        if name:
            found += [((guilt.cause.names[0], partner), name) for partner in _partner(guilt, good)]
        elif not name and _conflicting(story, guilt, names, policy):
            found += [((guilt.cause.names[0], other), "") for other in _partner(guilt, good)]
    beside = found[0][1] if found else ""
    if beside and len(good) > 1:
        one = good.lend(story.fleet.nodes[0], lambda _: True)
        other = good.lend(one, good.near(one)) if one else None
        if one and other:
            found.append(((one, other), beside))
    return found


def _next(story: Story, guilt: Guilt, guilty: Set[str], policy: Policy) -> str:
    """The adapter to run next: each once, then a single bad one again, so that chance does not name it."""
    if not looked_into(story, guilt):
        return ""
    node = guilt.cause.names[0]
    done = [seen.rail for seen in _runs(story, node)]
    left = [name for name in story.rails if name not in done]
    if left:
        return left[0]
    bad = adapters(story, guilt, guilty, policy).bad
    return next((name for name in bad if len(bad) == 1 and done.count(name) == 1), "")


def _partner(guilt: Guilt, good: Good) -> list[str]:
    lent = good.lend(guilt.cause.names[0], good.near(guilt.cause.names[0]))
    return [lent] if lent else []


def _conflicting(story: Story, guilt: Guilt, guilty: Set[str], policy: Policy) -> bool:
    """Whether each adapter by itself was fine, and the node was not run over all of them since."""
    runs = _runs(story, guilt.cause.names[0])
    if not looked_into(story, guilt) or not runs or adapters(story, guilt, guilty, policy).bad:
        return False
    last = max(seen.number for seen in runs)
    return all(seen.number < last for seen in story.tried[guilt.cause.names[0]])


def looked_into(story: Story, guilt: Guilt) -> bool:
    """Whether its adapters are run one by one: for a node that answers, has several, and does not hang."""
    hangs = {seen.failed for seen in story.pairs if seen.number in guilt.bad} & {"hung", "killed"}
    return len(story.rails) > 1 and guilt.cause.kind is Kind.NODE and not guilt.lost and not hangs


def nodes_of(guilty: Sequence[Guilt]) -> frozenset[str]:
    """The guilty nodes: runs with them are no measure for others."""
    return frozenset(guilt.cause.names[0] for guilt in guilty if guilt.cause.kind is Kind.NODE)


def _runs(story: Story, node: str) -> list[Seen]:
    return [seen for seen in story.all if seen.rail and node in seen.nodes]


def adapters(story: Story, guilt: Guilt, guilty: Set[str], policy: Policy) -> Adapters:
    """Sort the runs of a node's adapters into bad and fine.

    An adapter is held against those of good pairs, which has every adapter of the fleet alike; without any, against
    the faster half of the node's own.
    """
    node = guilt.cause.names[0]
    runs = _runs(story, node)
    beside = [s.gbs for s in story.all if s.rail and s.gbs is not None and guilty.isdisjoint(s.nodes)]
    ref = reference(beside if len(beside) > 1 else [seen.gbs for seen in runs if seen.gbs is not None])
    found = Adapters({}, {})
    for seen in runs:
        if seen.never:
            continue
        side = found.bad if _bad(seen, ref, guilt, policy) else found.fine
        side.setdefault(seen.rail, []).append(seen)
    return found


def _bad(seen: Seen, ref: Reference | None, guilt: Guilt, policy: Policy) -> bool:
    if seen.failed:
        return True
    if ref is None or seen.gbs is None:
        return False
    whole = -math.log(1 - guilt.slower) if guilt.slower else 0.0
    return math.log(ref.gbs / seen.gbs) > max(policy.least_gap, 4 * ref.scale, whole / 2)


def judged(story: Story, guilt: Guilt, guilty: Set[str], policy: Policy) -> Guilt:
    """The guilty node with its adapter, where the runs name one."""
    if not looked_into(story, guilt):
        return guilt
    found = adapters(story, guilt, guilty, policy)
    names = sorted({*found.bad, *found.fine})
    if not names:
        return guilt
    guilt = replace(guilt, bad_over_one=tuple(seen.number for runs in found.bad.values() for seen in runs))
    if len(found.bad) == 1:
        (name, runs) = next(iter(found.bad.items()))
        if len(runs) > 1 and name not in found.fine:
            return replace(guilt, rail=name, rail_says=f"{len(runs)} runs over {name} alone were bad, none over others")
        says = f"{name} alone was bad in {len(runs)} of {len(runs) + len(found.fine.get(name, []))} runs: not sure"
        return replace(guilt, rail_says=says)
    if set(found.bad) >= set(names):
        return replace(guilt, rail_says="bad over every one of its adapters: not an adapter")
    some = ", ".join(sorted(found.bad))
    fine = f"each of the {len(names)} adapters that were run by themselves was fine"
    return replace(guilt, rail_says=f"several of its adapters were bad: {some}" if some else fine)
