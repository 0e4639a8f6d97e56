"""What came of launches beside their speed: those that never began, and rounds in which we lost contact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.nccl.model import LaunchResult, Outcome

# A hang that printed nothing is evidence all the same: a GPU that does not answer stops a rank before its first word.
_AT_ONCE = (Outcome.EMPTY, Outcome.FAILED, Outcome.KILLED, Outcome.TRUNCATED)
MOST_IDLE = 3  # rounds in a row in which nothing began, after which it is not single nodes that launches stop at
CUT_OFF = "we lost contact with most of them at one time"


def never_began(ended: LaunchResult) -> str:
    """Why no rank of a launch ever spoke, so that it says nothing of the nodes' hardware; "" where one did."""
    run = ended.run
    if run.outcome not in _AT_ONCE or run.ranks or run.rows or run.transports:
        return ""
    return run.cause or "nothing says why"


def cut_off(history: Sequence[LaunchResult]) -> frozenset[int]:
    """The numbers of all runs of rounds in which more than half of the nodes were lost.

    That many nodes do not vanish at one time: it is the way to them, or what they all hang on.
    """
    found: set[int] = set()
    for numbers in _rounds(history):
        nodes = {node for number in numbers for node in history[number].launch.nodes}
        lost = {node for number in numbers for node in history[number].lost}
        if len(lost) * 2 > len(nodes):
            found.update(numbers)
    return frozenset(found)


def stalled(history: Sequence[LaunchResult]) -> bool:
    """Whether something began once, and nothing at all in the last rounds."""
    idle = [all(never_began(history[number]) for number in numbers) for numbers in _rounds(history)]
    return not all(idle) and len(idle) > MOST_IDLE and all(idle[-MOST_IDLE:])


def _rounds(history: Sequence[LaunchResult]) -> Iterator[list[int]]:
    """Runs in a row that share no node: they were made at the same time, or might have been."""
    numbers: list[int] = []
    busy: set[str] = set()
    for number, ended in enumerate(history):
        if not busy.isdisjoint(ended.launch.nodes):
            yield numbers
            numbers, busy = [], set()
        numbers.append(number)
        busy.update(ended.launch.nodes)
    if numbers:
        yield numbers
