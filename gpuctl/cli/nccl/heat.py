"""The pair matrix on a terminal: one row and one column a node, coloured by how far a pair is from the usual one."""

from __future__ import annotations

from collections.abc import Iterator

import click

from gpuctl.nccl.report.matrix import Matrix, node_summaries

# How a pair is coloured, by its share of the median pair: what a reader's eye should find, not a verdict.
SLOW, VERY_SLOW = 0.95, 0.80
CELL = 7


def lines(matrix: Matrix, width: int) -> Iterator[str]:
    """The map in at most `width` columns; of too many nodes those that stand worst, and it says so."""
    if matrix.usual is None:
        yield "no pair gave a number"
    label = max((len(node) for node in matrix.nodes), default=0)
    room = max(2, (width - label) // CELL)
    worst = [summary.node for summary in node_summaries(matrix)][:room]
    shown = [node for node in matrix.nodes if node in worst]
    yield " " * label + "".join(f"{_tail(node):>{CELL}}" for node in shown)
    for one in shown:
        yield one.ljust(label) + "".join(_cell(matrix, one, other) for other in shown)
    hidden = len(matrix.nodes) - len(shown)
    yield f"GB/s; the median pair {_number(matrix.usual)}; - not measured, ! failed at least once" + (
        f"; {hidden} nodes that stand better are not shown" if hidden else ""
    )


def _cell(matrix: Matrix, one: str, other: str) -> str:
    cell = matrix.cell(one, other)
    if one == other:
        return " " * (CELL - 1) + "·"
    if cell is None:
        return " " * (CELL - 1) + "-"
    text = f"{_number(cell.speed)}{'!' if cell.failed else ''}".rjust(CELL)
    return click.style(text, fg=_colour(cell.speed, matrix.usual, cell.failed))


def _colour(speed: float | None, usual: float | None, failed: int) -> str | None:
    if failed or speed is None or usual is None:
        return "red"
    share = speed / usual if usual else 1.0
    return "red" if share < VERY_SLOW else "yellow" if share < SLOW else None


def _number(speed: float | None) -> str:
    if speed is None:
        return "?"
    return f"{speed:.1f}" if speed < 1000 else f"{speed:.0f}"


def _tail(node: str) -> str:
    """The end of a name, which distinguishes it from the others."""
    return node if len(node) < CELL else "…" + node[-(CELL - 2) :]
