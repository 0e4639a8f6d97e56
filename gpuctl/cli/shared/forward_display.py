"""Show port forwards: a live table on a terminal, else one line per change."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

import click

from gpuctl.core.exit_codes import INTERRUPTED
from gpuctl.kube.forward import flow
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.state_machine import Line
from gpuctl.kube.forward.table import as_line, drawn


class Table:
    """A table that redraws itself in place."""

    def __init__(self) -> None:
        self.height = 0

    def show(self, lines: Sequence[Line], trouble: str) -> None:
        width, height = shutil.get_terminal_size()
        text = [*drawn(lines, time.monotonic(), width, height), *([trouble[: width - 1]] if trouble else [])]
        up = f"\x1b[{self.height}A" if self.height else ""
        sys.stdout.write(f"{up}\r" + "".join(f"{line}\x1b[K\n" for line in text) + "\x1b[J")
        sys.stdout.flush()
        self.height = len(text)


class Lines:
    """Prints a line for each change."""

    def __init__(self) -> None:
        self.before: dict[int, str] = {}
        self.trouble = ""

    def show(self, lines: Sequence[Line], trouble: str) -> None:
        for number, line in enumerate(lines):
            text = as_line(line)
            if self.before.get(number) != text:
                self.before[number] = text
                click.echo(text)
        if trouble and trouble != self.trouble:
            click.echo(trouble)
        self.trouble = trouble


def go(request: Request, probe_every: float = 5.0) -> int:
    """Run the forwards until Ctrl-C; returns its exit code."""
    view = Table() if sys.stdout.isatty() else Lines()
    flow.run(request, view.show, probe_every)
    click.echo("all forwards stopped", err=True)
    return INTERRUPTED
