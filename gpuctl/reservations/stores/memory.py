"""Store in memory, for simulations and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.reservations.rules.decision import Decision, apply, is_over, key
from gpuctl.reservations.rules.model import AuditEntry, Book, Clock, Disk, Node, Receipt, Reservation, Row, Site
from gpuctl.reservations.stores.base import Conflict


class MemoryStore:
    """Everything in dictionaries; a book is never changed, so that a snapshot stays what it was."""

    def __init__(self, site: Site, nodes: Iterable[Node]) -> None:
        self._book = Book(site, {node.name: node for node in nodes}, clock=Clock())
        self._versions = {key(node): node.version for node in self._book.nodes.values()}
        self._over: dict[str, Reservation] = {}
        self._receipts: dict[str, Receipt] = {}
        self._entries: list[AuditEntry] = []

    def load(self) -> Book:
        return self._book

    def receipt(self, key: str) -> Receipt | None:
        return self._receipts.get(key)

    def commit(self, decision: Decision) -> None:
        for change in decision.changes:
            if (version := self._versions.get(key(change.row), 0)) != change.expected:
                raise Conflict(f"{key(change.row)} has version {version}, not {change.expected}")
        if decision.receipt is not None:
            if decision.receipt.key in self._receipts:
                raise Conflict(f"there is a receipt of {decision.receipt.key}")
            self._receipts[decision.receipt.key] = decision.receipt
        for change in decision.changes:
            self._write(change.row)
        self._book = apply(self._book, decision.changes)
        self._entries += decision.entries

    def reservation(self, id_: str) -> Reservation | None:
        return self._book.reservations.get(id_) or self._over.get(id_)

    def finished(self, person: str | None, most: int) -> Sequence[Reservation]:
        over = [row for row in self._over.values() if person in (None, row.person)]
        return sorted(over, key=lambda row: (-(row.finished_at or 0), row.id))[:most]

    def history(self, subject: str | None, most: int) -> Sequence[AuditEntry]:
        return [entry for entry in reversed(self._entries) if subject in (None, entry.subject)][:most]

    def forget_receipts(self, before_at: int) -> int:
        old = [receipt.key for receipt in self._receipts.values() if receipt.at < before_at]
        for name in old:
            del self._receipts[name]
        return len(old)

    def _write(self, row: Row) -> None:
        if isinstance(row, Disk) and is_over(row):  # another one may get its name
            del self._versions[key(row)]
            return
        self._versions[key(row)] = row.version
        if isinstance(row, Reservation) and is_over(row):
            self._over[row.id] = row
