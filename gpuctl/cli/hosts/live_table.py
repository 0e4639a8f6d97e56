"""Live table of a run over hosts, for terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuctl.hosts.judge import status
from gpuctl.hosts.model import HostResult

COLOURS = {"ok": "green", "changed": "green", "differs": "yellow", "needs a reboot": "yellow"}


class LiveTable:
    """One row for each host; if they do not fit the screen, hosts with problems first and counts of the others.

    `describe`: the text of a row.
    """

    def __init__(self, hosts: Sequence[str], *, strict: bool, describe: Callable[[HostResult], str]) -> None:
        self.rows: dict[str, HostResult | None] = dict.fromkeys(hosts)
        self.strict, self.describe = strict, describe
        self.live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)

    def start(self) -> None:
        """Draw the table from now on."""
        self.live.start()
        self.live.update(self._table())

    def stop(self) -> None:
        """Clear the screen; the report is printed next."""
        self.live.stop()

    def update(self, result: HostResult) -> None:
        """Replace the row of a host."""
        self.rows[result.host] = result
        self.live.update(self._table())

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        waiting = [host for host, result in self.rows.items() if result is None]
        most = max(4, self.live.console.height - 3)
        results = [result for result in self.rows.values() if result is not None]
        results.sort(key=lambda result: status(result, strict=self.strict) in ("ok", "changed"))
        for result in results[:most]:
            # As plain text: brackets in a host's output would be markup.
            style = COLOURS.get(status(result, strict=self.strict), "red")
            table.add_row(Text(result.host), Text(self.describe(result), style=style))
        if len(results) > most:
            table.add_row("…", f"{len(results) - most} more")
        if waiting:
            table.add_row("…", Text(f"waiting for {len(waiting)}: {', '.join(waiting[:8])}"), style="dim")
        return table
