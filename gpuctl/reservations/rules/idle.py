"""Idle detection: idle only if every source was sampled without gaps and none shows work. Unknown is not idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Limits, Reservation, State

Built = TypeVar("Built", int, float)


class Activity(StrEnum):
    """Use of a session within the window."""

    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Sample:
    """One reading of a session. None means that a source could not be read.

    `gpu_percent`: the busiest of its GPUs. `connections`: established ssh connections, with or without a terminal.
    `jupyter_s`: seconds since Jupyter's last activity; -1 if the session has no Jupyter.
    """

    at: int
    gpu_percent: float | None
    connections: int | None
    jupyter_s: int | None = -1


@dataclass(frozen=True)
class Use:
    """Use of a session on one node, as in `Sample`."""

    gpu_percent: float | None
    connections: int | None


def merged(at: int, uses: Sequence[Use | None]) -> Sample:
    """Sample of a session from its nodes; None for one that could not be read. Work on any node is work."""
    percents = [None if use is None else use.gpu_percent for use in uses]
    connections = [None if use is None else use.connections for use in uses]
    return Sample(at, _most(percents), _most(connections))


def _most(values: Sequence[Built | None]) -> Built | None:
    """The highest value; None if one is unknown and no other is above 0."""
    known = [value for value in values if value is not None]
    return max(known) if known and (any(known) or len(known) == len(values)) else None


def judge(reservation: Reservation, samples: Sequence[Sample], limits: Limits, now: int) -> tuple[Activity, str]:
    """Activity of a session over the window, with the reason."""
    since = now - limits.idle_window_s
    if reservation.active_at is None or reservation.active_at > since:
        return Activity.BUSY, "younger than the window"
    window = sorted((sample for sample in samples if since - limits.idle_sample_gap_s <= sample.at <= now), key=_at)
    instants = [since, *(sample.at for sample in window if sample.at > since), now]
    gap = max(after - before for before, after in pairwise(instants))
    for sample in window:
        if sample.at >= since and (reason := _work(sample, limits)):
            return Activity.BUSY, reason
    if not window or gap > limits.idle_sample_gap_s:
        return Activity.UNKNOWN, f"no samples for {gap} s" if window else "no samples"
    if any(None in (sample.gpu_percent, sample.connections, sample.jupyter_s) for sample in window):
        return Activity.UNKNOWN, "a source could not be read"
    return Activity.IDLE, f"no GPU work, connection or Jupyter activity for {limits.idle_window_s // 60} minutes"


def _at(sample: Sample) -> int:
    return sample.at


def _work(sample: Sample, limits: Limits) -> str:
    if sample.gpu_percent:
        return f"its GPUs were up to {sample.gpu_percent:g} % busy"
    if sample.connections:
        return f"{sample.connections} ssh connections"
    if sample.jupyter_s is not None and 0 <= sample.jupyter_s < limits.idle_window_s:
        return "Jupyter was used"
    return ""


def record(draft: Draft, reservation: Reservation, activity: Activity, reason: str) -> None:
    """Announce the end of an idle session, or withdraw it as soon as it is used, unknown, or kept by its owner."""
    if reservation.state is not State.ACTIVE:
        return
    idle = activity is Activity.IDLE and draft.now >= reservation.keep_until_at
    if idle and reservation.idle_at is None:
        end_at = draft.now + draft.book.site.limits.idle_notice_s
        draft.put(replace(reservation, idle_at=end_at, warned_min=None, warned_at=None))
        draft.note("announce idle end", reservation.id, reason, after=str(end_at))
    elif not idle and reservation.idle_at is not None:
        draft.put(replace(reservation, idle_at=None, warned_min=None, warned_at=None))
        draft.note("withdraw idle end", reservation.id, reason, before=str(reservation.idle_at))
