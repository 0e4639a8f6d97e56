"""Decisions on a store: one at a time, again on newer rows if another process has changed them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gpuctl.reservations.rules import commands
from gpuctl.reservations.rules.commands import Message
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Book, Receipt, Reservation
from gpuctl.reservations.stores.base import Conflict, Store, StoreError

TRIES = 5  # of a decision whose rows another process changed
Built = TypeVar("Built")


class Decisions:
    """Commits what is decided on snapshots of a store. `clock`: whole seconds since 1970. `lock`: of all decisions."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self.store, self.clock = store, clock
        self.lock = threading.RLock()

    def load(self) -> Book:
        """Snapshot of the store."""
        with self.lock:
            return self.store.load()

    def live(self, id_: str) -> Reservation | None:
        """A live reservation."""
        return self.load().reservations.get(id_)

    def handle(self, message: Message) -> Receipt:
        """Decide a command and commit the decision; the first receipt of its key."""
        with self.lock:
            for _ in range(TRIES):
                previous = self.store.receipt(commands.receipt_key(message.caller, message.key))
                decision, receipt = commands.handle(self.store.load(), message, self.clock(), previous)
                try:
                    if not decision.empty:
                        self.store.commit(decision)
                except Conflict:
                    continue
                return receipt
            raise StoreError("decide", "another process changes the reservations all the time", "stop the other one")

    def decide(self, actor: str, decide: Callable[[Draft], Built]) -> Built:
        """Commit what is decided on a snapshot, again on a newer one if rows have changed; returns what it returned."""
        with self.lock:
            for _ in range(TRIES):
                draft = Draft(self.store.load(), self.clock(), actor)
                result = decide(draft)
                decision = draft.decision()
                try:
                    if not decision.empty:
                        self.store.commit(decision)
                except Conflict:
                    continue
                return result
            raise StoreError("decide", "another process changes the reservations all the time", "stop the other one")
