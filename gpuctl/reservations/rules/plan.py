"""EASY back-fill: the first request that does not fit gets a promised start; later ones start if they keep it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gpuctl.core.text import named
from gpuctl.reservations.rules import fair_share, queue
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Reservation, Slot
from gpuctl.reservations.rules.pool import Pool, longest_hold_s, unusable


def plan(draft: Draft, silent: Mapping[str, int] | None = None, no_whole: Collection[str] = ()) -> None:
    """Start what fits, and promise a start to the first request of each type that does not.

    `silent`: nodes that do not answer now, with the instant at which they count as lost. `no_whole`: nodes that take no
    session of all of their GPUs; without another node such a request has no promise, and keeps no smaller one waiting.
    """
    waiting = queue.ordered(draft.book, draft.now, fair_share.use_now(draft.book, draft.now))
    quotas = queue.Quotas(draft.book)
    for gpu_type in dict.fromkeys(reservation.gpu_type for reservation in waiting):
        pool = Pool.of(draft.book, gpu_type, draft.now)
        pool.hold(silent or {})
        pool.hold_whole(no_whole)
        _Pass(draft, pool, quotas).run([reservation for reservation in waiting if reservation.gpu_type == gpu_type])


class _Pass:
    """One walk through the queue of a type. `head` is the request with the promise."""

    def __init__(self, draft: Draft, pool: Pool, quotas: queue.Quotas) -> None:
        self.draft, self.pool, self.quotas = draft, pool, quotas
        self.free = pool.free_gpus()
        self.refused: dict[tuple[int, int], int] = {}  # nodes and GPUs -> shortest length that did not fit
        self.head: Reservation | None = None
        self.promise = 0

    def run(self, waiting: list[Reservation]) -> None:
        for reservation in waiting:
            if self.head is not None and self.free == 0:
                return
            if (self.head is not None and reservation.total_gpus > self.free) or self.quotas.block(reservation):
                continue
            shape = reservation.nodes, reservation.gpus
            if reservation.length_s >= self.refused.get(shape, reservation.length_s + 1):
                continue  # a shorter one of this shape did not fit, and the pool is not emptier since
            if slots := self.placement(reservation):
                self._start(reservation, slots)
                continue
            self.refused[shape] = reservation.length_s
            if self.head is None:
                self._promise(reservation)

    def placement(self, reservation: Reservation) -> tuple[Slot, ...] | None:
        """Free GPUs whose use until the end of the request keeps the promised start."""
        slots = self.pool.fit(reservation.nodes, reservation.gpus)
        if slots is None or self.head is None or self._keeps_promise(reservation, slots):
            return slots
        reserved = self.pool.earliest(self.head.nodes, self.head.gpus)
        avoid = {slot.node for slot in reserved.slots} if reserved else set()
        slots = self.pool.fit(reservation.nodes, reservation.gpus, avoid)
        return slots if slots and self._keeps_promise(reservation, slots) else None

    def _keeps_promise(self, reservation: Reservation, slots: tuple[Slot, ...]) -> bool:
        if self.head is None:
            return True
        before = self.pool.occupy(slots, self._until(reservation))
        at = self.pool.earliest_at(self.head.nodes, self.head.gpus)
        self.pool.restore(before)
        return at is not None and at <= self.promise

    def _until(self, reservation: Reservation) -> int:
        return self.draft.now + longest_hold_s(reservation.length_s, self.draft.book.site.limits)

    def _start(self, reservation: Reservation, slots: tuple[Slot, ...]) -> None:
        if self.head is None:
            reason = "its turn, and it fits"
        else:
            reason = f"back-fill: keeps the promised start of {self.head.id}"
        self.pool.occupy(slots, self._until(reservation))
        self.free -= reservation.total_gpus
        if reservation.promised_at is None:
            self.quotas.add(reservation)
        self.draft.start(reservation, slots, reason)

    def _promise(self, reservation: Reservation) -> None:
        """Give, improve, move or withdraw the promised start of the first request that waits."""
        start = self.pool.earliest_at(reservation.nodes, reservation.gpus)
        lost = named(node.name for node in unusable(self.draft.book, reservation.gpu_type))
        if start is None:
            if reservation.promised_at is not None:
                self.draft.put(replace(reservation, promised_at=None))
                self.draft.note(
                    "withdraw promise",
                    reservation.id,
                    "too few usable nodes" + (f"; not usable: {lost}" if lost else ""),
                )
            return
        at = start if reservation.promised_at is None else self._revised(reservation, start, lost)
        self.head, self.promise = reservation, at
        if reservation.promised_at is None:
            self.quotas.add(reservation)
            self.draft.note("promise", reservation.id, "first that waits", after=str(at))
        if at != reservation.promised_at:
            self.head = replace(reservation, promised_at=at)
            self.draft.put(self.head)
            self.head = self.draft.book.reservations[reservation.id]

    def _revised(self, reservation: Reservation, at: int, lost: str) -> int:
        promised = reservation.promised_at
        if promised is None or at <= promised:
            return promised if promised is not None else at
        cause = f"not usable: {lost}" if lost else "a session was not cleared in time, or a warning came late"
        self.draft.note("move promise", reservation.id, cause, str(promised), str(at))
        return at
