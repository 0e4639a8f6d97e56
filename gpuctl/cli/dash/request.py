"""Request of `gpuctl dash`; apart, so that panels can name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuctl.cli.dash.model import CommandLine


@dataclass(frozen=True)
class DashRequest:
    """Subjects of the panels. `panel`: the first one to show. `sources`: recorded facts in place of nodes.

    `every` and `timeout` in seconds. `socket`: of the reservations' service. `allow_changes`: of production, too.
    """

    panel: str
    inventory: str | None
    limit: str
    context: str
    sources: tuple[Path, ...]
    every: float
    timeout: float
    region: str
    aws_profile: str
    socket: Path
    allow_changes: bool = False

    def command_line(self, *names: str) -> CommandLine:
        """Command on these nodes."""
        options: dict[str, str | None] = {}
        if self.inventory is not None:
            options["--inventory"] = self.inventory
        if self.limit:
            options["--limit"] = self.limit
        if self.context:
            options["--context"] = self.context
        return CommandLine(names, options, self._sources())

    def _sources(self) -> Sequence[tuple[str, str]]:
        return [("--from", str(source)) for source in self.sources]
