"""Request of `gpuctl dash`; apart, so that panels can name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuctl.cli.dash.model import CommandLine

SLURM = "--slurm"


@dataclass(frozen=True)
class DashRequest:
    """Subjects of the panels. `panel`: the first one to show. `sources`: recorded facts in place of nodes.

    `slurm`, `partition`, `nodes`, `via`: as in `gpuctl nodes`. `every` and `timeout` in seconds. `socket`: of the
    reservations' service. `allow_changes`: of production, too. `web`: address and port to serve the screen at;
    `allow_remote`: also one that other machines reach.
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
    slurm: bool = False
    partition: str = ""
    nodes: str = ""
    via: str | None = None
    allow_changes: bool = False
    web: str = ""
    allow_remote: bool = False

    @property
    def arguments(self) -> list[str]:
        """Arguments of the same screen in a browser, which runs no command."""
        options = {
            "--panel": self.panel,
            "--inventory": self.inventory or "",
            "--limit": self.limit,
            "--context": self.context,
            "--partition": self.partition,
            "--nodes": self.nodes,
            "--via": self.via or "",
            "--every": f"{self.every:g}",
            "--timeout": f"{self.timeout:g}",
            "--region": self.region,
            "--aws-profile": self.aws_profile,
            "--socket": str(self.socket),
        }
        pairs = [*((name, value) for name, value in options.items() if value), *self._sources()]
        return ["dash", *([SLURM] if self.slurm else []), *(word for pair in pairs for word in pair)]

    def command_line(self, *names: str) -> CommandLine:
        """Command on these nodes."""
        options: dict[str, str | None] = {}
        if self.inventory is not None:
            options["--inventory"] = self.inventory
        if self.limit:
            options["--limit"] = self.limit
        if self.context:
            options["--context"] = self.context
        if self.slurm:
            options[SLURM] = None
        if self.partition:
            options["--partition"] = self.partition
        if self.nodes:
            options["--nodes"] = self.nodes
        return CommandLine(names, options, self._sources())

    def _sources(self) -> Sequence[tuple[str, str]]:
        return [("--from", str(source)) for source in self.sources]
