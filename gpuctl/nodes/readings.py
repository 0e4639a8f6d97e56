"""Time without work, from readings at several times: one visit cannot tell how long a GPU has been idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuctl.nodes.model import Gpu, Node, Quiet, State

FORGOTTEN_S = 14 * 86400  # a GPU that was not read for so long is dropped
QUIET = (State.IDLE, State.RESERVED, State.MEMORY_IN_USE)


@dataclass(frozen=True)
class Streak:
    """Readings in a row that show no work on a GPU. Times are Unix times; `readings`: their number."""

    since: int
    last: int
    readings: int


Streaks = Mapping[str, Streak]  # "node uuid" -> its streak


def update(streaks: Streaks, nodes: list[Node], now: int) -> dict[str, Streak]:
    """Add a reading: a GPU at work, or one whose work is unknown, ends its streak. Unread GPUs keep theirs."""
    kept = {key: streak for key, streak in streaks.items() if now - streak.last < FORGOTTEN_S}
    for node in nodes:
        for gpu in node.gpus:
            key = key_of(node, gpu)
            old = kept.pop(key, None)
            if is_quiet(gpu) and gpu.uuid:
                kept[key] = Streak(now, now, 1) if old is None else _longer(old, now)
    return kept


def _longer(old: Streak, now: int) -> Streak:
    return replace(old, last=now, readings=old.readings + 1) if now > old.last else old


def with_quiet(node: Node, streaks: Streaks) -> Node:
    """Node with the time without work of each GPU that has a streak."""
    quiet = {
        gpu.index: Quiet(streak.last - streak.since, streak.readings)
        for gpu in node.gpus
        if (streak := streaks.get(key_of(node, gpu)))
    }
    return replace(node, quiet=quiet)


def key_of(node: Node, gpu: Gpu) -> str:
    return f"{node.name} {gpu.uuid}"


def is_quiet(gpu: Gpu) -> bool:
    """True if nothing computes on a GPU: no process, or processes that leave it at 0 %."""
    if gpu.state is State.USED:
        return gpu.busy_percent == 0
    return gpu.state in QUIET
