"""Fair share: use decays with a half-life; who used less, relative to the share, goes first. The group comes first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from gpuctl.reservations.rules.model import Book, Reservation, State, Usage
from gpuctl.reservations.rules.state_machine import HOLDING


def decayed(usage: Usage, now: int, half_life_s: int) -> float:
    """GPU-seconds that count now."""
    return usage.gpu_seconds * math.pow(0.5, max(0, now - usage.at) / half_life_s)


def accrued(gpus: int, from_at: int, now: int, half_life_s: int) -> float:
    """GPU-seconds of an allocation that lasts until now, its earlier part already decayed."""
    elapsed = max(0, now - from_at)
    return gpus * half_life_s / math.log(2) * (1 - math.pow(0.5, elapsed / half_life_s))


def charge(usage: Usage, reservation: Reservation, now: int, half_life_s: int) -> Usage:
    """Use after an allocation has been released."""
    if reservation.allocated_at is None:
        return usage
    more = accrued(reservation.total_gpus, reservation.allocated_at, now, half_life_s)
    return replace(usage, gpu_seconds=decayed(usage, now, half_life_s) + more, at=max(now, usage.at))


def keys(reservation: Reservation) -> tuple[str, str]:
    """Keys of the use that a reservation is charged to."""
    return f"group:{reservation.group}", f"person:{reservation.person}"


def use_now(book: Book, now: int) -> Mapping[str, float]:
    """GPU-seconds of the persons and groups that wait, by key, running reservations included."""
    half_life = book.site.limits.half_life_s
    waiting = {key for row in book.in_state(State.QUEUED) for key in keys(row)}
    use = {key: decayed(book.usage[key], now, half_life) if key in book.usage else 0.0 for key in waiting}
    for row in book.reservations.values():
        if row.state in HOLDING and row.allocated_at is not None and not waiting.isdisjoint(keys(row)):
            more = accrued(row.total_gpus, row.allocated_at, now, half_life)
            for key in waiting.intersection(keys(row)):
                use[key] += more
    return use


def weight(book: Book, reservation: Reservation, use: Mapping[str, float]) -> tuple[float, float]:
    """Sort key, the smaller first: use of the group divided by its share, then use of the person."""
    group, person = keys(reservation)
    return use.get(group, 0.0) / book.site.shares.get(reservation.group, 1.0), use.get(person, 0.0)
