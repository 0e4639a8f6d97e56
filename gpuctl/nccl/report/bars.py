"""Baseline to draw beside the measured bandwidth on a page."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl import context
from gpuctl.nccl.baselines import load
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.model import LaunchResult
from gpuctl.nccl.report.plots import Bar


def bars(results: Sequence[LaunchResult], system: str) -> list[Bar]:
    """Expected bandwidth of a machine type at each measured size, if all runs are judged by the same rows.

    Empty if no row fits or the runs differ in kind; `InvalidInput` for an unknown machine type.
    """
    book = load.book()
    if system not in book.known:
        doing, hint = f"draw the baseline of {system!r}", "`gpuctl nccl baselines list` shows all machine types"
        raise InvalidInput(doing, "no machine type has this name", hint)
    drawn = {_bars(end, system, book) for end in results if end.run.rows}
    return list(drawn.pop()) if len(drawn) == 1 else []


def _bars(end: LaunchResult, system: str, book: Book) -> tuple[Bar, ...]:
    stated = context.RunContext(
        system,
        nodes=len(end.launch.nodes),
        gpus_per_node=end.launch.sweep.gpus_per_node,
        algorithm=end.launch.sweep.env.get("NCCL_ALGO", "default"),
    )
    known = context.infer(end.run, stated)
    rows = [(row.size_bytes, book.row_for(known, row.size_bytes)) for row in end.run.rows]
    return tuple(Bar(size, base.expect, base.warn, base.fail) for size, base in rows if base is not None)
