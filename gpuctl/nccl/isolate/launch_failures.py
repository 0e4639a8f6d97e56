"""Launches that never started, and the nodes on which none starts any more. They are no evidence against any node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from gpuctl.nccl.model import LaunchResult, Outcome

START_TRIES = 2  # failed starts in a row after which a node is excluded
MOST_IDLE = 3  # rounds in a row without a single start, after which no single node can be the cause
CUT_OFF = "we lost contact with most of them at one time"
# A hang without output still is evidence: a GPU that does not answer stops a rank before its first line.
_NEVER_RAN = (Outcome.EMPTY, Outcome.FAILED, Outcome.KILLED, Outcome.TRUNCATED)

Starts = Iterable[tuple[Sequence[str], bool]]  # in order: the nodes of a launch, and whether it started


def never_started(result: LaunchResult) -> str:
    """The reason why no rank of a launch printed anything; "" if one did."""
    run = result.run
    if run.outcome not in _NEVER_RAN or run.ranks or run.rows or run.transports:
        return ""
    return run.cause or "the output gives no cause"


def cut_off(history: Sequence[LaunchResult]) -> frozenset[int]:
    """The numbers of all runs of rounds in which more than half of the nodes were lost.

    Most nodes do not fail at the same time: the connection to them did, or a part that they share.
    """
    runs: set[int] = set()
    for numbers in rounds_of(history):
        nodes = {node for number in numbers for node in history[number].launch.nodes}
        lost = {node for number in numbers for node in history[number].lost}
        if len(lost) * 2 > len(nodes):
            runs.update(numbers)
    return frozenset(runs)


def stalled(history: Sequence[LaunchResult]) -> bool:
    """True if launches started at first and none did in the last rounds."""
    idle = [all(never_started(history[number]) for number in numbers) for numbers in rounds_of(history)]
    return not all(idle) and len(idle) > MOST_IDLE and all(idle[-MOST_IDLE:])


def rounds_of(history: Sequence[LaunchResult]) -> Iterator[list[int]]:
    """Consecutive runs that share no node: they ran at the same time, or could have."""
    numbers: list[int] = []
    busy: set[str] = set()
    for number, result in enumerate(history):
        if not busy.isdisjoint(result.launch.nodes):
            yield numbers
            numbers, busy = [], set()
        numbers.append(number)
        busy.update(result.launch.nodes)
    if numbers:
        yield numbers


def excluded_nodes(launches: Starts) -> frozenset[str]:
    """The nodes whose last START_TRIES launches did not start, whatever ran on them before.

    A failed start counts for one node only: the node with most of them is taken first, and among equals the one with
    fewest successful starts, because a partner from the pool of good nodes is usually fine.
    """
    every = list(launches)
    if all(started for _, started in every):
        return frozenset()
    by_node: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for number, (nodes, started) in enumerate(every):
        for node in nodes:
            by_node[node].append((number, started))
    starts = {node: sum(started for _, started in launches) for node, launches in by_node.items()}
    return _blamed({node: _last_failed(launches) for node, launches in by_node.items()}, starts)


def _last_failed(launches: Sequence[tuple[int, bool]]) -> frozenset[int]:
    """The numbers of the failed starts since the last successful one."""
    return frozenset(number for number, _ in takewhile(lambda launch: not launch[1], reversed(launches)))


def _blamed(failed: Mapping[str, frozenset[int]], starts: Mapping[str, int]) -> frozenset[str]:
    left = {node: numbers for node, numbers in failed.items() if numbers}
    blamed: set[str] = set()
    while left:
        worst = max(left, key=lambda node: (len(left[node]), -starts[node]))
        if len(left[worst]) < START_TRIES:
            break
        same = {node for node in left if (left[node], starts[node]) == (left[worst], starts[worst])}
        blamed |= same
        left = {node: numbers - left[worst] for node, numbers in left.items() if node not in same}
    return frozenset(blamed)
