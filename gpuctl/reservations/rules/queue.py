"""Order of the queue, and what keeps a request from starting that no free GPU would change."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.reservations.rules import fair_share
from gpuctl.reservations.rules.model import Book, DiskState, Reservation, State
from gpuctl.reservations.rules.state_machine import HOLDING


def ordered(book: Book, now: int, use: Mapping[str, float]) -> list[Reservation]:
    """Requests that wait: with a promised start, then those that waited too long by age, then by fair share."""

    def rank(reservation: Reservation) -> tuple[int, float, float, int, str]:
        if reservation.promised_at is not None:
            return 0, reservation.promised_at, 0.0, reservation.submitted_at, reservation.id
        if is_starving(book, reservation, now):
            return 1, 0.0, 0.0, reservation.submitted_at, reservation.id
        return 2, *fair_share.weight(book, reservation, use), reservation.submitted_at, reservation.id

    return sorted(book.in_state(State.QUEUED), key=rank)


def is_starving(book: Book, reservation: Reservation, now: int) -> bool:
    """True once it has waited so long that its age decides, not the use of its owner."""
    return now - reservation.submitted_at >= book.site.limits.starving_s


class Quotas:
    """GPUs in use or promised, by person and group."""

    def __init__(self, book: Book) -> None:
        self.limits = book.site.limits
        self._disks = book.disks
        self._persons: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._promised_disks: dict[str, str] = {}
        self._copied = {disk.source for disk in book.disks.values() if disk.source}
        for reservation in book.reservations.values():
            if reservation.state in HOLDING or reservation.promised_at is not None:
                self.add(reservation)

    def add(self, reservation: Reservation) -> None:
        """Count a reservation that starts or gets a promise."""
        total = reservation.total_gpus
        self._persons[reservation.person] = self._persons.get(reservation.person, 0) + total
        self._groups[reservation.group] = self._groups.get(reservation.group, 0) + total
        if reservation.disk is not None:
            self._promised_disks[reservation.disk] = reservation.id

    def block(self, reservation: Reservation) -> str:
        """The reason for which the request cannot start even on free GPUs; empty if none."""
        counted = reservation.total_gpus if reservation.promised_at is not None else 0
        for limit, use, owner in (
            (self.limits.gpus_per_person, self._persons.get(reservation.person, 0), reservation.person),
            (self.limits.gpus_per_group, self._groups.get(reservation.group, 0), f"group {reservation.group}"),
        ):
            if limit is not None and use - counted + reservation.total_gpus > limit:
                return f"{owner} has {use - counted} of {limit} GPUs in use or promised"
        return self._disk_block(reservation)

    def _disk_block(self, reservation: Reservation) -> str:
        if reservation.disk is None:
            return ""
        disk = self._disks[reservation.disk]
        if disk.state is not DiskState.READY:
            return f"disk {disk.name} is {disk.state}" + (f": {disk.reason}" if disk.reason else "")
        if disk.volume_id in self._copied:
            return f"disk {disk.name} is being cloned"
        attached = disk.attached or self._promised_disks.get(reservation.disk)
        if attached is None or attached == reservation.id:
            return ""
        return f"disk {reservation.disk} is attached or promised to reservation {attached}"
