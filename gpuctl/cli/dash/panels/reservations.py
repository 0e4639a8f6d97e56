"""Reservations: `gpuctl reservations list`, `queue` and `availability` below each other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from gpuctl.cli.dash.model import CommandLine, Detail, Line, PanelKey, View, command_line, shell_text
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.reservations.commands import (
    Table,
    availability_table,
    queue_table,
    reservations_table,
    with_free,
)
from gpuctl.cli.shared import output
from gpuctl.engine import printable
from gpuctl.reservations.client import SOCKET, Client

PAUSE_S = 5.0


class ReservationsPanel:
    """Reservations that are active or wait, the queue, and the free GPUs of each node."""

    name, title = "reservations", "Reservations"

    def __init__(self, request: DashRequest) -> None:
        self._client = Client(request.socket)
        self._socket = [] if request.socket == SOCKET else ["--socket", str(request.socket)]
        options: dict[str, str | None] = {} if request.socket == SOCKET else {"--socket": str(request.socket)}
        self._line = CommandLine(("reservations", "list"), options)
        self._state: dict[str, Any] = {}
        self._read_at = ""
        self.keys: Sequence[PanelKey] = (
            PanelKey("m", "only your reservations, or all", lambda _: self._line.toggle("--mine")),
        )

    @property
    def command(self) -> str:
        return str(self._line)

    def read(self) -> float:
        """Ask the service."""
        self._state, self._read_at = self._client.state(), time.strftime("%H:%M:%S")
        return PAUSE_S

    def view(self) -> View:
        if not self._read_at:
            return View()
        rows = self._state["reservations"]
        mine = "--mine" in self._line.options
        shown = [row for row in rows if not mine or row["person"] == self._state["person"]]
        queued = [row for row in rows if row["state"] == "queued"]
        nodes = with_free(self._state["nodes"])
        lines = [
            *_section("reservations", reservations_table(shown), [row["id"] for row in shown]),
            *_section("queue", queue_table(queued), [row["id"] for row in queued]),
            *_section("availability", availability_table(nodes), [""] * len(nodes)),
        ]
        free = sum(node["free"] for node in nodes)
        total = sum(len(node["allocated"]) for node in nodes)
        return View(lines, "", [f"{free} of {output.plural(total, 'GPU')} free"], self._read_at)

    def detail(self, subject: str) -> Detail | None:
        """Return a reservation in full, and the commands that change it."""
        row = next((row for row in self._state.get("reservations", ()) if row["id"] == subject), None)
        if row is None:
            return None
        text = yaml.safe_dump(dict(row), sort_keys=False, allow_unicode=True, width=110)
        lines = [Line(printable(line)) for line in text.splitlines()]
        lines += [Line(""), Line("Commands:")]
        for words in (["connect", subject], ["extend", subject, "--hours", "2"], ["cancel", subject]):
            lines.append(command_line(shell_text(["reservations", *words, *self._socket])))
        return Detail(f"reservation {subject}", lines, shell_text(["reservations", "show", subject, *self._socket]))


def _section(title: str, table: Table, subjects: Sequence[str]) -> Iterator[Line]:
    head, *texts = output.columns(*table)
    yield Line(title.upper())
    yield Line(f"  {head}")
    for text, subject in zip(texts, subjects, strict=True):
        yield Line(f"  {text}", subject)
    if not texts:
        yield Line("  none")
    yield Line("")
