"""Who was waiting for whom: what a look at every node of a run that stood still says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WAITING, GONE, UNKNOWN = "waiting", "gone", "unknown"


@dataclass(frozen=True)
class Process:
    """A process of a launch on a node. `still`: its first thread did nothing while we looked; a rank that waits for
    others polls all the time."""

    pid: int
    name: str
    state: str  # the kernel's letter: R S D T Z
    rank: int | None
    still: bool


Looks = Mapping[str, Sequence[Process] | None]  # node -> its ranks; None: no answer


def waiting(looks: Looks, ranks_a_node: int) -> dict[str, str]:
    """Node -> whether its ranks waited for others, or took no part any more, or nobody knows.

    A node that lacks a rank is "gone"; so is one where a rank does nothing while those of other nodes wait. Where more
    nodes are quiet than poll, nobody is accused: quiet ranks may well be waiting, too, in their own way.
    """
    polling = [node for node, found in looks.items() if found and not any(process.still for process in found)]
    if not polling or len(polling) < len(looks) - len(polling):
        return dict.fromkeys(looks, UNKNOWN)
    return {node: _part(found, ranks_a_node) for node, found in looks.items()}


def _part(found: Sequence[Process] | None, ranks_a_node: int) -> str:
    if found is None:
        return UNKNOWN
    return GONE if len(found) < ranks_a_node or any(process.still for process in found) else WAITING


def story(looks: Looks, ranks_a_node: int, limit_s: float, after: str) -> str:
    """The same in words, the culprits first."""
    when = f"after {after}" if after else "before the first size"
    return f"no end within {limit_s:g} s, {when}: {'; '.join(who_waits(looks, ranks_a_node))}"


def who_waits(looks: Looks, ranks_a_node: int) -> list[str]:
    """Who waits for whom, the culprits first; where that is not known, how many do what."""
    if looks and all(found == [] for found in looks.values()):
        return ["no rank had begun"]
    told = waiting(looks, ranks_a_node)
    silent = [f"{node} gives no answer" for node, found in looks.items() if found is None]
    waits = [node for node, how in told.items() if how == WAITING]
    if not waits:
        return [*silent, *_tally(looks), "nobody knows who waits for whom"]
    said = [_culprit(node, looks[node] or (), ranks_a_node) for node, how in told.items() if how == GONE] + silent
    return [*said, f"{', '.join(waits)} {'waits' if len(waits) == 1 else 'wait'} for it" if said else "all wait"]


def _tally(looks: Looks) -> list[str]:
    """How many nodes did what, where that alone is known."""
    answers = [found for found in looks.values() if found is not None]
    still = sum(any(process.still for process in found) for found in answers)
    none = sum(not found for found in answers)
    words = [(still, "stand still"), (none, "have no rank left"), (len(answers) - still - none, "wait")]
    return [", ".join(f"{count} of {len(looks)} nodes {what}" for count, what in words if count)] if answers else []


def _culprit(node: str, found: Sequence[Process], ranks_a_node: int) -> str:
    if len(found) < ranks_a_node:
        return f"{node} has {f'only {len(found)}' if found else 'none'} of its {ranks_a_node} ranks left"
    names = {"T": "stopped", "t": "stopped by a debugger", "D": "blocked in the kernel"}
    still = [process for process in found if process.still]
    how = sorted({names.get(process.state, "doing nothing") for process in still})
    which = ", ".join(map(str, sorted(process.rank for process in still if process.rank is not None)))
    who = f"ranks {which} are" if len(still) > 1 else f"rank {which} is" if which else "the test is"
    return f"on {node} {who} {' or '.join(how)}"
