"""Diagnose a hang from a snapshot of every node: which ranks wait for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WAITING, GONE, UNKNOWN = "waiting", "gone", "unknown"


@dataclass(frozen=True)
class Process:
    """A process of a launch on a node. `still`: its main thread was idle during the snapshot; a rank that waits for
    others polls all the time.
    """

    pid: int
    name: str
    state: str  # the kernel's letter: R S D T Z
    rank: int | None
    still: bool


Looks = Mapping[str, Sequence[Process] | None]  # node -> its ranks; None: no answer


def waiting(looks: Looks, ranks_a_node: int) -> dict[str, str]:
    """Node -> WAITING for others, GONE (takes no part any more) or UNKNOWN.

    A node that lacks a rank is GONE; so is one with an idle rank while the ranks of other nodes poll. If more nodes
    are idle than poll, all are UNKNOWN: idle ranks may be waiting in another way.
    """
    polling = [
        node for node, processes in looks.items() if processes and not any(process.still for process in processes)
    ]
    if not polling or len(polling) < len(looks) - len(polling):
        return dict.fromkeys(looks, UNKNOWN)
    return {node: _part(processes, ranks_a_node) for node, processes in looks.items()}


def _part(processes: Sequence[Process] | None, ranks_a_node: int) -> str:
    if processes is None:
        return UNKNOWN
    return GONE if len(processes) < ranks_a_node or any(process.still for process in processes) else WAITING


def story(looks: Looks, ranks_a_node: int, limit_s: float, after: str) -> str:
    """Describe the hang in one sentence, culprits first."""
    when = f"after {after}" if after else "before the first size"
    return f"no end within {limit_s:g} s, {when}: {'; '.join(who_waits(looks, ranks_a_node))}"


def who_waits(looks: Looks, ranks_a_node: int) -> list[str]:
    """Ranks and the ranks they wait for, culprits first; if that is unknown, counts of nodes by state."""
    if looks and all(processes == [] for processes in looks.values()):
        return ["no rank had started"]
    states = waiting(looks, ranks_a_node)
    silent = [f"{node} does not answer" for node, processes in looks.items() if processes is None]
    waits = [node for node, state in states.items() if state == WAITING]
    if not waits:
        return [*silent, *_tally(looks), "which ranks wait is unknown"]
    culprits = [
        _culprit(node, looks[node] or (), ranks_a_node) for node, state in states.items() if state == GONE
    ] + silent
    return [
        *culprits,
        f"{', '.join(waits)} {'waits' if len(waits) == 1 else 'wait'} for it" if culprits else "all wait",
    ]


def _tally(looks: Looks) -> list[str]:
    """Counts of nodes by state, for a hang whose culprits are unknown."""
    answers = [processes for processes in looks.values() if processes is not None]
    still = sum(any(process.still for process in processes) for processes in answers)
    none = sum(not processes for processes in answers)
    counts = [(still, "are idle"), (none, "have no rank left"), (len(answers) - still - none, "wait")]
    return [", ".join(f"{count} of {len(looks)} nodes {what}" for count, what in counts if count)] if answers else []


def _culprit(node: str, processes: Sequence[Process], ranks_a_node: int) -> str:
    if len(processes) < ranks_a_node:
        return f"{node} has {f'only {len(processes)}' if processes else 'none'} of its {ranks_a_node} ranks left"
    names = {"T": "stopped", "t": "stopped by a debugger", "D": "blocked in the kernel"}
    still = [process for process in processes if process.still]
    how = sorted({names.get(process.state, "doing nothing") for process in still})
    which = ", ".join(map(str, sorted(process.rank for process in still if process.rank is not None)))
    who = f"ranks {which} are" if len(still) > 1 else f"rank {which} is" if which else "the test is"
    return f"on {node} {who} {' or '.join(how)}"
