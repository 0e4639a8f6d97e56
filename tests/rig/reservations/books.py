"""Small sites for the tests of single rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuctl.reservations.rules import commands, plan, reports
from gpuctl.reservations.rules.commands import Command, Message
from gpuctl.reservations.rules.decision import Draft, apply
from gpuctl.reservations.rules.model import HOUR, Book, Caller, Limits, Node, Receipt, Reservation, Site
from gpuctl.reservations.rules.requests import Request

NOW = 1_700_000_000
ADA, BOB, ROOT = Caller("ada", "vision"), Caller("bob", "speech"), Caller("root", "ops", admin=True)


def book(nodes: int = 2, gpus: int = 8, gpu_type: str = "h100", **limits: Any) -> Book:
    """A site of equal nodes gpu-1, gpu-2, ..."""
    rows = [Node(f"gpu-{number}", gpu_type, (None,) * gpus) for number in range(1, nodes + 1)]
    return Book(Site(Limits(**limits)), {node.name: node for node in rows})


class Desk:
    """A book with a clock: commands, passes and reports of nodes, one after the other."""

    def __init__(self, book: Book) -> None:
        self.book, self.now = book, NOW
        self.receipts: dict[str, Receipt] = {}
        self.actions: list[str] = []
        self._keys = 0

    def send(self, command: Command, caller: Caller = ADA, key: str | None = None) -> Receipt:
        self._keys += 1
        message = Message(command, caller, key or f"key-{self._keys}")
        previous = self.receipts.get(commands.receipt_key(caller, message.key))
        decision, answer = commands.handle(self.book, message, self.now, previous)
        self.book = apply(self.book, decision.changes)
        self.actions += [entry.action for entry in decision.entries]
        self.receipts.setdefault(answer.key, answer)
        return answer

    def reserve(self, gpus: int, hours: float = 1, caller: Caller = ADA, **request: Any) -> str:
        answer = self.send(commands.Submit(Request(gpus, length_s=int(hours * HOUR), **request)), caller)
        assert answer.accepted, answer.message
        self.now += 1
        return answer.reservation

    def decide(self, decide: Any, *arguments: Any) -> None:
        draft = Draft(self.book, self.now, "test")
        decide(draft, *arguments)
        self.book = apply(self.book, draft.decision().changes)
        self.actions += [entry.action for entry in draft.entries]

    def plan(self) -> None:
        self.decide(plan.plan)

    def start(self, gpus: int, hours: float = 1, caller: Caller = ADA, **request: Any) -> str:
        """Reserve, plan, and let every node report that it is ready."""
        id_ = self.reserve(gpus, hours, caller, **request)
        self.plan()
        for slot in self[id_].slots:
            self.decide(reports.session_ready, id_, self[id_].attempt, slot.node)
        return id_

    def clear(self, id_: str) -> None:
        """Every node reports that nobody has access any more."""
        row = self[id_]
        for slot in row.slots:
            self.decide(reports.session_cleared, id_, row.attempt, slot.node)

    def change(self, id_: str, **fields: Any) -> None:
        """Change a row as by hand."""
        rows = {**self.book.reservations, id_: replace(self[id_], **fields)}
        self.book = replace(self.book, reservations=rows)

    def __getitem__(self, id_: str) -> Reservation:
        return self.book.reservations[id_]

    def __contains__(self, id_: str) -> bool:
        return id_ in self.book.reservations
