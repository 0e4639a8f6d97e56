"""Where nobody said which rack each node is in: what is slow may be slow for the way between racks alone.

A node that is bad is slow with everybody. One that is slow with some and fast with others, always the same ones, looks
as if it stood in another rack than they do. Names follow racks as a rule: of the nearest nodes before and after it one
is in its own.
"""

from __future__ import annotations

from dataclasses import replace

from gpuctl.core import text
from gpuctl.nccl.isolate import small_fleets
from gpuctl.nccl.isolate.attribution import Explained
from gpuctl.nccl.isolate.follow_up import Pair, ran_well
from gpuctl.nccl.isolate.model import Doubt, Guilt, Kind, Policy, Round
from gpuctl.nccl.isolate.observations import Story
from gpuctl.nccl.model import Launch

WHY = "slow with some nodes and fast with others, always the same, as across racks: say which rack each node is in"
ONE_SIDE = "slow with {}, and nobody knows whether they share its rack: say which rack each node is in"


def both_sides(story: Story, explained: Explained, policy: Policy) -> Round | None:
    """Slow nodes with the nearest good one before and after them, as far as they have not met these."""
    if small_fleets.racks_known(story) or story.stalled:
        return None
    busy: set[str] = set()
    pairs: list[Pair] = []
    for guilt in _slow(story, explained):
        node = guilt.cause.names[0]
        if guilt.cause.kind is not Kind.NODE or node in story.shut or not _is_slow_with_all(guilt, story):
            continue
        other = next((each for each in _due(node, story, explained) if each not in busy), None)
        if other is not None and node not in busy:
            pairs.append((node, other))
            busy |= {node, other}
    why = "slow nodes with the nearest ones on either side, as it is not known which share a rack"
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why) if pairs else None


def judged(story: Story, explained: Explained) -> tuple[Explained, tuple[Doubt, ...]]:
    """What is explained without the slow causes that racks may explain as well, and a doubt about each of these."""
    if small_fleets.racks_known(story):
        return explained, ()
    whys = [(guilt, _why(guilt, story, explained)) for guilt in _slow(story, explained)]
    doubtful = {guilt.cause: why for guilt, why in whys if why}
    guilty = tuple(guilt for guilt in explained.guilty if guilt.cause not in doubtful)
    doubts = tuple(Doubt(guilt.bad, (guilt.cause,), why) for guilt, why in whys if why)
    return replace(explained, guilty=guilty), doubts


def _slow(story: Story, explained: Explained) -> list[Guilt]:
    """Those that are slow, and that not every pair has set apart."""
    found = (guilt for guilt in explained.guilty if not guilt.failing and not guilt.lost)
    return [g for g in found if g.cause.kind in (Kind.NODE, Kind.LINK) and g.cause.names[0] not in story.parted.apart]


def _why(guilt: Guilt, story: Story, explained: Explained) -> str:
    """Why it may as well be the way between racks; "" where it may not."""
    met = _met(guilt, story)
    changing = any(len({was_bad for other, was_bad in met if other == each}) > 1 for each, _ in met)
    if changing:  # racks do not come and go
        return ""
    if guilt.cause.kind is Kind.LINK or not _is_slow_with_all(guilt, story):
        return WHY
    others = sorted({other for nodes, _ in met for other in nodes} - set(guilt.cause.names))
    return ONE_SIDE.format(text.named(others)) if _due(guilt.cause.names[0], story, explained) else ""


def _is_slow_with_all(guilt: Guilt, story: Story) -> bool:
    return all(slow for _, slow in _met(guilt, story))


def _met(guilt: Guilt, story: Story) -> list[tuple[frozenset[str], bool]]:
    """Every run of it that can be compared: the nodes, and whether it was slow. Who was fast with anybody is fast."""
    gaps = [run.shortfall for run in story.pairs if run.number in guilt.bad and run.shortfall is not None]
    slow = max(0.25 * min(gaps, default=0.0), 2 * story.scale)
    runs = (run for run in story.of_node[guilt.cause.names[0]] if set(guilt.cause.names) <= set(run.nodes))
    return [(frozenset(run.nodes), run.shortfall >= slow) for run in runs if run.shortfall is not None]


def _due(node: str, story: Story, explained: Explained) -> list[str]:
    """The nearest node on each side of it that is not bad with everybody, as far as they have not met; a run that
    cannot be compared tells nothing, and the next one serves."""
    tried = {other for run in story.tried.get(node, ()) for other in run.nodes}
    met = {other for run in story.of_node.get(node, ()) if run.shortfall is not None for other in run.nodes}
    bad = {name for guilt in explained.guilty if guilt.failing for name in guilt.cause.names}
    bad |= {guilt.cause.names[0] for guilt in _slow(story, explained) if _is_slow_with_all(guilt, story)}
    good = ran_well(story) - bad - story.shut - (tried - met)
    at = story.fleet.nodes.index(node)
    sides = (story.fleet.nodes[:at][::-1], story.fleet.nodes[at + 1 :])
    nearest = [next((other for other in side if other in good and other not in story.lost), None) for side in sides]
    return [other for other in nearest if other is not None and other not in met]
