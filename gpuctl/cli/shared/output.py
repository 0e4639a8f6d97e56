"""Print results for people and scripts: tables, JSON and YAML."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import click

from gpuctl.core import text
from gpuctl.engine import printable

if TYPE_CHECKING:
    from gpuctl.hosts.model import HostResult

names = text.named
plural = text.plural
Output = Literal["table", "json", "yaml"]


def data(value: object, form: Output) -> None:
    """Print a plain value as JSON or YAML."""
    if form == "json":
        click.echo(json.dumps(value, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110), nl=False)


def unreached(result: HostResult) -> None:
    """Print to standard error why a host gave no answer; nothing for one that did."""
    if result.answer is None:
        click.echo(f"{result.host}: {result.wrong}" + (f"; {result.hint}" if result.hint else ""), err=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], err: bool = False) -> None:
    """Print columns as wide as they need to be; the last one may be any length. `err`: to standard error."""
    for line in columns(head, rows):
        click.echo(line, err=err)


def columns(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a table: the head, then one for each row."""
    cells = [[printable(str(cell).strip()).replace("\n", "⏎") for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False))
        yield f"{line}  {row[-1]}".strip() if len(row) > 1 else row[0]


def on_terminal() -> bool:
    """True if standard error is a terminal, so that somebody watches the progress."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def slow_notice(doing: str, after_s: float = 5) -> Iterator[None]:
    """Print "still `doing`" on standard error if the block takes longer than `after_s`."""

    def notice() -> None:
        with contextlib.suppress(OSError):  # standard error is not read any more
            click.echo(f"gpuctl: still {doing}; Ctrl-C ends it", err=True)

    timer = threading.Timer(after_s, notice)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def jupyter_address(port: int) -> None:
    """Print where a forwarded Jupyter is."""
    text = f"Jupyter: http://127.0.0.1:{port} until Ctrl-C; the same command with --token prints its token"
    click.echo(text, err=True)
