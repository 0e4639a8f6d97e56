"""The promises of a store; tests/contracts/test_reservation_stores.py holds every store to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuctl.core.errors import GpuctlError
from gpuctl.reservations.rules.decision import Decision
from gpuctl.reservations.rules.model import AuditEntry, Book, Receipt, Reservation


class Conflict(Exception):
    """A row is no longer of the version that was decided on; nothing was written. Load again and decide again."""


class StoreError(GpuctlError):
    """The store could not be read or written, for now: the same call may succeed later."""


class Store(Protocol):
    """Rows with versions. A decision is written as a whole or not at all, also if the program is killed."""

    def load(self) -> Book:
        """Snapshot of live reservations, nodes, use, disks and clock, all of one instant."""

    def receipt(self, key: str) -> Receipt | None:
        """The answer to an earlier command with this key."""

    def commit(self, decision: Decision) -> None:
        """Write it all, if each row still has the expected version and the receipt's key is new; else `Conflict`."""

    def reservation(self, id_: str) -> Reservation | None:
        """A reservation in any state."""

    def finished(self, person: str | None, most: int) -> Sequence[Reservation]:
        """Reservations that are over, the latest first; of all persons with None."""

    def history(self, subject: str | None, most: int) -> Sequence[AuditEntry]:
        """Audit entries about a reservation, node or disk, the latest first; all with None."""

    def forget_receipts(self, before_at: int) -> int:
        """Delete receipts from before an instant; the result is their number."""
