"""Why a request waits, and when it starts: a range from the allocations of now and the queue ahead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpuctl.core.text import named, plural
from gpuctl.reservations.rules import fair_share, queue
from gpuctl.reservations.rules.model import Book, Reservation
from gpuctl.reservations.rules.pool import Pool, longest_hold_s, unusable


@dataclass(frozen=True)
class Wait:
    """Place of a request in the queue of its type, counted from 1.

    `earliest_at`: its start if everybody ahead left the queue and all sessions ran to their end. `latest_at`: its start
    if everybody ahead starts first and uses all their time; later requests with less use may still come before it,
    until it has a promise. None is unknown: the usable nodes are too few.
    """

    reservation: str
    position: int
    reason: str
    promised_at: int | None
    earliest_at: int | None
    latest_at: int | None


def forecast(
    book: Book, now: int, silent: Mapping[str, int] | None = None, no_whole: Collection[str] = ()
) -> dict[str, Wait]:
    """The wait of every queued request, by id, in the order of the queue. `silent`, `no_whole`: see `plan.plan`."""
    waiting = queue.ordered(book, now, fair_share.use_now(book, now))
    quotas = queue.Quotas(book)
    waits: dict[str, Wait] = {}
    for gpu_type in dict.fromkeys(reservation.gpu_type for reservation in waiting):
        ahead = [reservation for reservation in waiting if reservation.gpu_type == gpu_type]
        running, planned = Pool.of(book, gpu_type, now), Pool.of(book, gpu_type, now)
        for pool in (running, planned):
            pool.hold(silent or {})
            pool.hold_whole(no_whole)
        waits |= _of_type(book, ahead, quotas, running, planned, sorted((silent or {}).keys() & running.free_at.keys()))
    return waits


def _of_type(  # noqa: PLR0913, PLR0917 - two pools of one snapshot
    book: Book,
    waiting: list[Reservation],
    quotas: queue.Quotas,
    running: Pool,
    planned: Pool,
    silent: list[str],
) -> dict[str, Wait]:
    waits: dict[str, Wait] = {}
    for position, reservation in enumerate(waiting, 1):
        earliest = running.earliest_at(reservation.nodes, reservation.gpus)
        latest = planned.earliest(reservation.nodes, reservation.gpus)
        if latest is not None:
            until = latest.at + longest_hold_s(reservation.length_s, book.site.limits)
            planned.occupy(latest.slots, until)
        block = quotas.block(reservation)
        waits[reservation.id] = Wait(
            reservation.id,
            position,
            block or _reason(book, reservation, waiting[: position - 1], running) + _unknown(silent),
            reservation.promised_at,
            earliest,
            None if latest is None or block else min(latest.at, reservation.promised_at or latest.at),
        )
    return waits


def _unknown(silent: list[str]) -> str:
    return f"; unknown, so given to nobody: {named(silent)}" if silent else ""


def _reason(book: Book, reservation: Reservation, ahead: list[Reservation], pool: Pool) -> str:
    size = plural(reservation.gpus, "GPU") if reservation.nodes == 1 else f"{reservation.nodes} whole nodes"
    if pool.earliest_at(reservation.nodes, reservation.gpus) is None:
        missing = named(f"{node.name} is {node.state}" for node in unusable(book, reservation.gpu_type))
        return f"needs {size} of type {reservation.gpu_type}, and too few nodes are usable: {missing}"
    if not ahead:
        return f"first in line; {size} of type {reservation.gpu_type} must become free"
    promised = next((other for other in ahead if other.promised_at is not None), None)
    if promised is not None and pool.fit(reservation.nodes, reservation.gpus):
        return f"{size} are free, but it would delay the promised start of {promised.id} of {promised.person}"
    return f"behind {plural(len(ahead), 'request')} of {named(dict.fromkeys(row.person for row in ahead), 3)}"
