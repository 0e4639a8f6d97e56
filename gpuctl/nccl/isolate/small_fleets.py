"""Several bad nodes among a few: where some pairs do not tell which speed is the right one, every pair does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

from gpuctl.core import text
from gpuctl.nccl.isolate import verdict as proof
from gpuctl.nccl.isolate.attribution import Explained
from gpuctl.nccl.isolate.follow_up import crowded
from gpuctl.nccl.isolate.model import Conclusion, Doubt, Guilt, Kind, Policy, Round
from gpuctl.nccl.isolate.observations import FASTER, FEW_NODES, REACHES, Story
from gpuctl.nccl.isolate.speed_clusters import Pair, Parted, whole
from gpuctl.nccl.model import Launch

ALL_ALIKE = 8  # nodes up to which every pair is run where none stands out: in each there may have been a bad node
MANY = 1 / 3  # of the nodes held for slow: then every pair has to show it
PARTNERS = 4  # good nodes that a slow one has to have met where racks are not known
MOST_NAMES = 8


def unclear(story: Story, explained: Explained, doubts: Sequence[Doubt]) -> bool:
    """Whether, of a few nodes, the runs so far leave open which are bad, or whether any is."""
    if len(story.alive) > FEW_NODES:
        return False
    by_chance = {frozenset(seen.nodes) for seen in explained.chance if (seen.shortfall or 0.0) > FASTER}
    if (
        doubts
        or story.faster
        or _only_good(story)
        or len(by_chance) > 1
        or _path_or_racks(story, explained)
        or _many(story, explained)
    ):
        return True
    return not explained.guilty and len(story.alive) <= ALL_ALIKE and not as_expected(story)


def as_expected(story: Story) -> bool:
    """Whether a baseline says that the usual pair is as fast as it should be."""
    expected, usual = story.fleet.expected_gbs, story.usual
    return expected is not None and usual is not None and usual >= REACHES * expected


def racks_known(story: Story) -> bool:
    """Of every node."""
    return all(node in story.fleet.racks for node in story.fleet.nodes)


def _only_good(story: Story) -> list[tuple[str, ...]]:
    """The one pair that is left where all other nodes are set apart: it has to be fast more than once."""
    left = tuple(node for node in story.alive if node not in story.parted.apart and node in story.of_node)
    return [left] if story.parted.apart and len(left) == 2 else []


def _path_or_racks(story: Story, explained: Explained) -> bool:
    """Whether what is held for slow, a path or a node with some, may as well lie between racks nobody told us of."""
    slow = any(not guilt.failing and (guilt.cause.kind is Kind.LINK or guilt.flaky) for guilt in explained.guilty)
    return slow and not racks_known(story)


def meet_others(story: Story, explained: Explained, policy: Policy) -> Round | None:
    """Slow nodes of a few with more others, near ones first, where racks are not known: they may be fast in their own.

    A node that is slow with so many is bad, or alone in its rack. Of more than a handful a single one is not asked
    about: there, between racks, more than one pair would be slow.
    """
    slow = [g.cause.names[0] for g in explained.guilty if g.cause.kind is Kind.NODE and not g.failing]
    slow = [node for node in slow if node not in story.shut]
    one_of_many = len(slow) < 2 and len(story.alive) > ALL_ALIKE
    if story.stalled or one_of_many or len(story.alive) > FEW_NODES or racks_known(story):
        return None
    good = [node for node in story.alive if node not in slow and node in story.of_node and node not in story.shut]
    place = {node: number for number, node in enumerate(story.fleet.nodes)}
    wanted: list[Pair] = []
    for node in slow:
        met = {other for seen in story.tried[node] for other in seen.nodes}
        if len(met & set(good)) < PARTNERS:
            near = sorted(set(good) - met, key=lambda other: (abs(place[other] - place[node]), place[other]))
            wanted += [(node, other) for other in near]
    found = _disjoint(wanted, story)
    return _round(found, "slow nodes with others, as it is not known which share a rack", policy) if found else None


def _many(story: Story, explained: Explained) -> bool:
    """Whether so many are held for slow that a good one may be among them, which met bad ones only."""
    every = [guilt for guilt in explained.guilty if not guilt.failing]
    slow = [guilt for guilt in every if guilt.cause.kind is Kind.NODE]
    mixed = len(every) > 1 and (len(slow) < len(every) or any(guilt.flaky for guilt in every))
    return mixed or len(slow) > MANY * len(story.alive)


def next_round(story: Story, explained: Explained, policy: Policy) -> Round | None:
    """Pairs that were not run so far; then those again that were faster than all others and ran only once.

    None where there are more than a few nodes, and where runs fail, as each of them may take as long as a hang may.
    """
    if story.stalled or len(story.alive) > FEW_NODES or any(seen.failed for seen, _ in explained.open):
        return None
    out = {name for guilt in explained.guilty if guilt.failing for name in guilt.cause.names}
    out |= {*story.untested, *story.shut}
    if found := not_run(story, [node for node in story.alive if node not in out]):
        return _round(found, "pairs not run so far, as several nodes may be bad", policy)
    once = [pair for pair in (*story.faster, *_only_good(story)) if _due_again(story, pair)]
    found = _disjoint(once, story)
    return _round(found, "pairs that are faster than all others, again", policy) if found else None


def not_run(story: Story, nodes: Sequence[str]) -> list[Pair]:
    """Disjoint pairs of these nodes that were never run."""
    done = {frozenset(seen.nodes) for seen in (*story.pairs, *story.never)}
    return _disjoint([pair for pair in combinations(nodes, 2) if frozenset(pair) not in done], story)


def _disjoint(pairs: Iterable[Sequence[str]], story: Story) -> list[Pair]:
    found: list[Pair] = []
    for one, other in pairs:
        busy = {node for pair in found for node in pair}
        if not {one, other} & busy and not crowded([*found, (one, other)], story.fleet.racks):
            found.append((one, other))
    return found


def _due_again(story: Story, pair: Sequence[str]) -> bool:
    """Whether it was run once only, and may be run again."""
    launches = [seen for seen in story.tried[pair[0]] if set(seen.nodes) == set(pair)]
    return sum(not seen.never for seen in launches) == 1 and story.shut.isdisjoint(pair)


def _round(pairs: Iterable[Pair], why: str, policy: Policy) -> Round:
    return Round(tuple(Launch(pair, policy.sweep) for pair in pairs), why)


def undecided(story: Story) -> bool:
    """Whether every pair was run, and still it cannot be said which of two speeds is the right one."""
    groups = bool(story.parted.groups) and not racks_known(story)
    return bool(story.parted.sides) or groups or _mostly_slow(story)


def _mostly_slow(story: Story) -> bool:
    """Whether, of a few nodes, most pairs are slow in no pattern: then a good node looks as bad as a bad one."""
    gone = story.lost | story.shut
    able = {pair: gap for pair, gap in story.gaps.items() if gone.isdisjoint(pair)}
    left = {pair: gap for pair, gap in able.items() if story.parted.apart.isdisjoint(pair)}
    slow = [pair for pair, gap in left.items() if gap > FASTER]
    every = whole({node for pair in able for node in pair}, [able])
    return every and len(story.alive) <= FEW_NODES and 2 * len(slow) > len(left)


def verdict(story: Story, explained: Explained, policy: Policy) -> Conclusion:
    """What it comes to then: only who is bad beside that is named."""
    named = tuple(guilt for guilt in explained.guilty if _beside(guilt, story))
    numbers = tuple(seen.number for seen in story.pairs if not story.parted.apart & set(seen.nodes))
    why = says(story.parted, {tuple(seen.nodes): seen.gbs for seen in story.pairs if seen.gbs is not None})
    return proof.conclusion(story, replace(explained, guilty=named), (Doubt(numbers, (), why),), policy)


def _beside(guilt: Guilt, story: Story) -> bool:
    apart = guilt.cause.kind is Kind.NODE and guilt.cause.names[0] in story.parted.apart
    return guilt.lost or guilt.failing or apart


def says(parted: Parted, speeds: Mapping[tuple[str, ...], float]) -> str:
    """Both speeds and whose they are, where it cannot be said which is the right one."""
    if not parted.groups and not parted.sides:
        return "most pairs are slow, and no set of bad nodes explains which: no majority tells which speed is right"
    of = {node: number for number, nodes in enumerate(parted.groups or parted.sides[:1]) for node in nodes}
    within = [gbs for pair, gbs in speeds.items() if len({of.get(node) for node in pair}) == 1 and pair[0] in of]
    across = [
        gbs
        for pair, gbs in speeds.items()
        if not parted.apart & set(pair) and len({of.get(node, node) for node in pair}) > 1
    ]
    fast, slow = f"{median(within):.0f} GB/s", f"{median(across):.0f}"
    if parted.groups:
        each = "; ".join(names(nodes) for nodes in parted.groups)
        return (
            f"pairs have two speeds, as within and across racks: {fast} within groups of nodes ({each}) and {slow}"
            f" across; say which rack each node is in"
        )
    few, many = parted.sides
    return (
        f"pairs have two speeds: {fast} among {names(few)} and {slow} with {names(many)}; these are more than half,"
        f" so it is not said whether they are bad or the others are only nearer to each other"
    )


def names(nodes: Sequence[str]) -> str:
    """A few of them."""
    return text.named(nodes, MOST_NAMES)
