"""Show port forwards: a live table on a terminal, else one line per change."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

import click

from gpuctl.core.exit_codes import INTERRUPTED, OK
from gpuctl.kube.forward import flow, service
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.state_machine import Line
from gpuctl.kube.forward.table import as_line, drawn
from gpuctl.kube.notify import to_tmux


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


def go_background(request: Request, probe_every: float = 5.0, announce: bool = False) -> int:
    """Start the forwards in the background and show them; returns the exit code.

    `announce`: also show them as a tmux message, for a tmux window that closes at once.
    """
    started = service.start(request, probe_every)
    if isinstance(started, service.Failure):
        click.echo(started.stderr, nl=False, err=True)
        return started.code
    ports = [f"127.0.0.1:{port.local} -> {port.pod}:{port.remote}: {port.state}" for port in started.ports]
    click.echo("\n".join(ports))
    click.echo(f"in the background; `gpuctl kube forward stop {started.number}` stops it", err=True)
    if announce:
        to_tmux(", ".join(ports))
    return OK
