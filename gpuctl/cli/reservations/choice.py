"""Ask a person on a terminal which of several reservations a command is for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from gpuctl.cli.reservations.reserve import place

Row = dict[str, Any]


def chooser() -> Callable[[Sequence[Row]], Row] | None:
    """Function that asks for one of several; None without a terminal, where nobody can answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _by_number if os.environ.get("TERM") in {None, "", "dumb"} else _by_arrows


def _by_arrows(rows: Sequence[Row]) -> Row:
    from gpuctl.cli.shared import list_choice

    number = list_choice.choose([_line(row) for row in rows])
    if number is None:
        raise click.Abort
    return rows[number]


def _by_number(rows: Sequence[Row]) -> Row:
    for number, row in enumerate(rows, 1):
        click.echo(f"{number:>3}  {_line(row)}", err=True)
    number = click.prompt("Number, or Ctrl-C for none", type=click.IntRange(1, len(rows)), err=True)
    return rows[number - 1]


def _line(row: Row) -> str:
    parts = [row["id"], row["name"], row["state"], f"{row['gpus']} x {row['gpu_type']}", place(row)]
    until = f"until {row['expires']}" if row["expires"] else ""
    return "  ".join(filter(None, [*parts, until]))
