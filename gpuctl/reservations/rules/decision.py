"""A decision in the making: changed rows over a snapshot, and the audit entries that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.reservations.rules import fair_share, ledger
from gpuctl.reservations.rules.model import (
    AuditEntry,
    Book,
    Clock,
    Disk,
    DiskState,
    Node,
    Receipt,
    Reservation,
    Row,
    Slot,
    State,
    Usage,
)
from gpuctl.reservations.rules.state_machine import CLEARED, OUTCOMES, TERMINAL, Event, next_state


@dataclass(frozen=True)
class Change:
    """One conditional write: `row` replaces the row of `expected` version; version 0 means that none exists yet."""

    row: Row
    expected: int


@dataclass(frozen=True)
class Decision:
    """Writes that belong together: a store applies all of them, with entries and receipt, or none."""

    changes: tuple[Change, ...] = ()
    entries: tuple[AuditEntry, ...] = ()
    receipt: Receipt | None = None

    @property
    def empty(self) -> bool:
        return not self.changes and not self.entries and self.receipt is None


class InvalidTransition(Exception):
    """An event that does not apply to the state of a reservation; the caller has not checked it."""


def key(row: Row) -> tuple[str, str]:
    """Kind and key of a row, unique in a store."""
    if isinstance(row, Reservation):
        return "reservation", row.id
    if isinstance(row, Usage):
        return "usage", row.key
    if isinstance(row, Clock):
        return "clock", "clock"
    return ("node" if isinstance(row, Node) else "disk"), row.name


def is_over(row: Row) -> bool:
    """True for a reservation that has ended, and for a disk that was deleted: neither is in a snapshot."""
    if isinstance(row, Reservation):
        return row.state in TERMINAL
    return isinstance(row, Disk) and row.state is DiskState.DELETED


def apply(book: Book, changes: Sequence[Change]) -> Book:
    """The snapshot after the changes; what is over leaves it. Only tables that change are copied."""
    tables: dict[str, dict[str, Any]] = {}
    for change in changes:
        kind, name = key(change.row)
        if kind not in tables:
            tables[kind] = dict(_table(book, kind))
        tables[kind][name] = change.row
        if is_over(change.row):
            del tables[kind][name]
    return Book(
        book.site,
        tables.get("node", book.nodes),
        tables.get("reservation", book.reservations),
        tables.get("usage", book.usage),
        tables.get("disk", book.disks),
        tables["clock"]["clock"] if "clock" in tables else book.clock,
    )


def _table(book: Book, kind: str) -> Mapping[str, Row]:
    tables: Mapping[str, Mapping[str, Row]] = {
        "reservation": book.reservations,
        "node": book.nodes,
        "usage": book.usage,
        "disk": book.disks,
        "clock": {},
    }
    return tables[kind]


def _with_version(row: Row, version: int) -> Row:
    """Like `dataclasses.replace`, which is the slowest step of a planning pass, without its checks of names."""
    copied = copy(row)
    object.__setattr__(copied, "version", version)
    return copied


class Draft:
    """Collects the changes of one decision. `now` is never before the latest decision, whatever the clock says."""

    def __init__(self, book: Book, now: int, actor: str) -> None:
        self.book, self.actor = book, actor
        self.now = max(now, book.clock.at)
        self.entries: list[AuditEntry] = []
        self._expected: dict[tuple[str, str], int] = {}
        self._rows: dict[tuple[str, str], Row] = {}

    def decision(self, receipt: Receipt | None = None) -> Decision:
        """All changes. They move the clock row, too, so that two decisions on one snapshot exclude each other."""
        if self._rows:
            self.put(replace(self.book.clock, at=self.now))
        return Decision(self._changes(), tuple(self.entries), receipt)

    def put(self, row: Row) -> None:
        """Write a row, and see it in `book` from now on."""
        identity = key(row)
        expected = self._expected.setdefault(identity, row.version)
        written = _with_version(row, expected + 1)
        self._rows[identity] = written
        self.book = apply(self.book, [Change(written, expected)])

    def note(self, action: str, subject: str, reason: str, before: str = "", after: str = "") -> None:
        """Add an audit entry."""
        self.entries.append(AuditEntry(self.now, self.actor, action, subject, reason, before, after))

    def move(self, reservation: Reservation, event: Event, reason: str, **fields: Any) -> Reservation:
        """Apply an event of the state machine and write the result."""
        after = next_state(reservation.state, event)
        if after is None:
            raise InvalidTransition(f"{event} does not apply to {reservation.id}, which is {reservation.state}")
        if after is State.ENDING:
            fields["outcome"] = OUTCOMES[event]
            self._fence([slot.node for slot in reservation.slots])
        if after in TERMINAL:
            fields["finished_at"] = self.now
        moved = replace(reservation, state=after, since_at=self.now, reason=reason, **fields)
        self.put(moved)
        self.note(str(event), reservation.id, reason, str(reservation.state), str(after))
        return self.book.reservations.get(reservation.id, moved)

    def start(self, reservation: Reservation, slots: tuple[Slot, ...], reason: str) -> Reservation:
        """Allocate GPUs and disk, and begin to prepare the session: one transaction for all nodes of a gang."""
        for slot in slots:
            self.put(ledger.allocate(self.book.nodes[slot.node], slot, reservation.id))
        if reservation.disk is not None:
            self.put(replace(self.book.disks[reservation.disk], attached=reservation.id))
        fresh: dict[str, Any] = {"ready": (), "cleared": (), "active_at": None, "expires_at": None, "outcome": None}
        fresh |= {"without_access": tuple(slot.node for slot in slots) if reservation.access else ()}
        fresh |= {"slots": slots, "attempt": reservation.attempt + 1, "allocated_at": self.now}
        return self.move(reservation, Event.START, reason, **fresh)

    def finish(self, reservation: Reservation, reason: str) -> Reservation:
        """Return GPUs and disk of an ending reservation, charge its use, and enter its outcome."""
        for name in [slot.node for slot in ledger.slots_of(self.book.nodes, reservation.id)]:
            self.put(ledger.release(self.book.nodes[name], reservation.id))
        if reservation.disk is not None and self.book.disks[reservation.disk].attached == reservation.id:
            self.put(replace(self.book.disks[reservation.disk], attached=None))
        half_life = self.book.site.limits.half_life_s
        for usage in fair_share.keys(reservation):
            row = self.book.usage.get(usage, Usage(usage, 0.0, self.now))
            self.put(fair_share.charge(row, reservation, self.now, half_life))
        outcome = reservation.outcome or State.FAILED
        again: dict[str, Any] = {}
        if outcome is State.QUEUED:
            again = {"slots": (), "allocated_at": None, "promised_at": None, "active_at": None, "expires_at": None}
            again |= {"warned_min": None, "warned_at": None, "idle_at": None}
        return self.move(reservation, CLEARED[outcome], reason, **again)

    def _fence(self, names: Sequence[str]) -> None:
        """Make earlier orders void on these nodes: a late order to prepare must not follow the one to clear."""
        for name in names:
            self.put(replace(self.book.nodes[name], fence=self.book.nodes[name].fence + 1))

    def _changes(self) -> tuple[Change, ...]:
        return tuple(Change(row, self._expected[identity]) for identity, row in self._rows.items())
