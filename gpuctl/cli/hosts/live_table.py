"""The live table of a run over hosts, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuctl.hosts.judge import status
from gpuctl.hosts.model import Visit

COLOURS = {"ok": "green", "changed": "green", "differs": "yellow", "needs a reboot": "yellow"}


class LiveTable:
    """One row a host; of a large fleet only what needs a look and the counts, so that it fits the screen."""

    def __init__(self, hosts: Sequence[str], strict: bool) -> None:
        self.rows: dict[str, Visit | None] = dict.fromkeys(hosts)
        self.strict = strict
        self.live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)

    def start(self) -> None:
        """Begin to draw."""
        self.live.start()
        self.live.update(self._table())

    def stop(self) -> None:
        """Leave the screen clean: the result is printed after it."""
        self.live.stop()

    def update(self, visit: Visit) -> None:
        """Draw a host anew."""
        self.rows[visit.host] = visit
        self.live.update(self._table())

    def _table(self) -> Table:
        from gpuctl.cli.hosts.report import line

        table = Table(box=None, show_header=False, pad_edge=False)
        waiting = [host for host, visit in self.rows.items() if visit is None]
        most = max(4, self.live.console.height - 3)
        seen = [(host, visit) for host, visit in self.rows.items() if visit is not None]
        # Those that need a look first: the others are only counted when there is no room.
        seen.sort(key=lambda row: status(row[1], self.strict) in ("ok", "changed"))
        for host, visit in seen[:most]:
            word = status(visit, self.strict)
            # As plain text: what a host says may hold brackets, which are markup otherwise.
            table.add_row(Text(host), Text(line(visit, self.strict), style=COLOURS.get(word, "red")))
        if len(seen) > most:
            table.add_row("…", f"{len(seen) - most} more")
        if waiting:
            table.add_row("…", Text(f"waiting for {len(waiting)}: {', '.join(waiting[:8])}"), style="dim")
        return table
