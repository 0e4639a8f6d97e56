"""Answers to calls that change nothing: nodes, reservations with their waits, and histories."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpuctl.reservations.calls import as_dict, iso, nothing_left
from gpuctl.reservations.decisions import Decisions
from gpuctl.reservations.github_keys import GithubSource
from gpuctl.reservations.node_states import NodeStates
from gpuctl.reservations.order_work import OrderWork
from gpuctl.reservations.rules import access, requests
from gpuctl.reservations.rules.forecast import Wait, forecast
from gpuctl.reservations.rules.model import Book, Caller, NodeState, Reservation, State

FORECAST_S = 5  # age of forecasts in answers


class Views:
    """Reads what people see. All methods need the lock of decisions."""

    def __init__(self, decisions: Decisions, nodes: NodeStates, orders: OrderWork, github: GithubSource) -> None:
        self._decisions, self._nodes, self._orders, self._github = decisions, nodes, orders, github
        self._shown: tuple[Book, int, int, list[dict[str, Any]]] | None = None

    def state(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Nodes, live reservations with their waits, and the table that requests are checked against."""
        nothing_left(content)
        book = self._decisions.load()
        table, ready = requests.catalogue(book), NodeState.READY
        return {
            "person": caller.person,
            "now": iso(self._decisions.clock()),
            "offers": [asdict(offer) for offer in table.offers.values()],
            "aliases": dict(table.aliases),
            "limits": asdict(table.limits),
            "pods": table.pods,
            "disks": table.disks,
            "nodes": [
                {
                    "name": node.name,
                    "gpu_type": node.gpu_type,
                    "state": "unknown" if node.name in self._nodes.unknown and node.state is ready else str(node.state),
                    "reason": self._nodes.reason(node.name),
                    "allocated": list(node.allocated),
                }
                for node in book.nodes.values()
            ],
            "reservations": self._rows(book),
        }

    def history(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Audit entries of a reservation, or reservations of the caller that are over."""
        subject = content.pop("subject", None)
        nothing_left(content)
        if subject is None:
            return {"reservations": [as_dict(row, None) for row in self._decisions.store.finished(caller.person, 50)]}
        entries = [{**asdict(entry), "at": iso(entry.at)} for entry in self._decisions.store.history(str(subject), 200)]
        return {"entries": entries}

    def row(self, id_: str) -> dict[str, Any] | None:
        rows = {row["id"]: row for row in self._rows(self._decisions.load())}
        over = self._decisions.store.reservation(id_)
        return rows.get(id_) or (None if over is None else as_dict(over, None))

    def _rows(self, book: Book) -> list[dict[str, Any]]:
        """Live reservations; the same for some seconds if nothing changes, since many clients poll."""
        now, revision, shown = self._decisions.clock(), self._orders.revision, self._shown
        if shown is not None and shown[0] is book and shown[1] == revision and 0 <= now - shown[2] < FORECAST_S:
            return shown[3]
        rows = self._forecast(book, now)
        self._shown = book, revision, now, rows
        return rows

    def _forecast(self, book: Book, now: int) -> list[dict[str, Any]]:
        waits = forecast(book, now, self._nodes.unknown_until(), tuple(self._nodes.no_whole))
        live = sorted(book.reservations.values(), key=lambda row: (row.state is State.QUEUED, row.submitted_at, row.id))
        waiting = [row for row in live if row.state is State.QUEUED]
        waiting.sort(key=lambda row: (row.gpu_type, waits[row.id].position))
        rest = [row for row in live if row.state is not State.QUEUED]
        return [self._as_dict(row, waits.get(row.id), book) for row in [*rest, *waiting]]

    def _as_dict(self, row: Reservation, wait: Wait | None, book: Book) -> dict[str, Any]:
        """A live reservation; the reason of one that is prepared is what its nodes wait for."""
        plain = as_dict(row, wait, book)
        if access.github_of(row):
            plain["github_trouble"] = self._github.trouble
        waits = self._orders.progress.get(row.id) if row.state is State.PREPARING else None
        if waits:
            plain["reason"] = "; ".join(f"{node}: {text}" for node, text in sorted(waits.items()))
        return plain
