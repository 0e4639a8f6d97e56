"""Ask a person on a terminal which of several reservations a command is for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from gpuctl.cli.reservations.reserve import place


def chooser() -> Callable[[Sequence[dict[str, Any]]], dict[str, Any]] | None:
    """Function that asks for one of several; None without a terminal, where nobody can answer."""
    return _choose if sys.stdin.isatty() and sys.stderr.isatty() else None


def _choose(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for number, row in enumerate(rows, 1):
        parts = [row["id"], row["name"], row["state"], f"{row['gpus']} x {row['gpu_type']}", place(row)]
        until = f"until {row['expires']}" if row["expires"] else ""
        click.echo(f"{number:>3}  {'  '.join(filter(None, [*parts, until]))}", err=True)
    number = click.prompt("Number, or Ctrl-C for none", type=click.IntRange(1, len(rows)), err=True)
    return rows[number - 1]
