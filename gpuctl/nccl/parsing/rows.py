"""One row of the table: sizes, types and the two halves, for the columns of any version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuctl.nccl.model import Iterations, NoNumber, Row, Timing
from gpuctl.nccl.parsing.lines import COUNT, DECIMAL

_COUNT, _NUMBER = re.compile(COUNT), re.compile(DECIMAL)
# C's output for a division by zero, and for undefined values.
NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
# Columns that were too narrow, or blanked out by somebody.
_UNREADABLE = re.compile(r"[*?-]+")
COLUMNS = ("time_us", "algbw_gbs", "busbw_gbs", "wrong")
_WORD = re.compile(r"[A-Za-z]\w*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Long enough to be the missing out-of-place half, which nccl-tests prints as blanks.
_BLANK_HALF = re.compile(r"\S {28,}\S")
_PLAIN, _PER_ITERATION = 4, 8  # cells of one half: time algbw busbw wrong, and with -I min max p99 cv%
# Up to here a deviation counted as right, by type (nccl-tests before 2.13, DeltaMaxValue).
_TOLERANCE = {"half": 1e-2, "bfloat16": 1e-2, "bf16": 1e-2, "float": 1e-5, "double": 1e-12}
_OPERATIONS = (None, "sum", "prod", "max", "min", "avg", "mulsum", "none")
_BYTES = {
    "half": 2,
    "bfloat16": 2,
    "bf16": 2,
    "float": 4,
    "double": 8,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
}
# The cells that a row begins with; the last of them may have other output right behind it.
_CELL = (
    r"(?:-?\d[\d.]*(?:e[-+]?\d+)?|N/A|bfloat16|bf16|float|double|half|u?int\d+|f8e\dm\d"
    r"|mulsum|sum|prod|max|min|avg|none)"
)
_CELLS = re.compile(rf"\s*{_CELL}(?:\s+{_CELL})+\s*")
_TYPE = re.compile(r"u?int\d*|u?int\d+|u?char|half|float\d*|double|bfloat16|bf16|fp?8\w*|none", re.IGNORECASE)


@dataclass(frozen=True)
class Shape:
    """Columns announced by a heading."""

    redop: bool
    root: bool
    per_iteration: bool


def shape(heading: str) -> Shape | None:
    """Columns of a heading line ("# size count type redop root time algbw busbw #wrong …"); None for any other line."""
    columns = heading.replace("#", " ").split()
    if columns[:2] != ["size", "count"] or "busbw" not in columns:
        return None
    return Shape("redop" in columns, "root" in columns, "i_p99" in columns)


def read(text: str, like: Shape | None) -> Row | None:
    """Parse a text that is exactly one row; None for any other text and for a cut row."""
    cells = text.split()
    if not 2 + _PLAIN <= len(cells) <= 32 or not all(map(_COUNT.fullmatch, cells[:2])):
        return None
    cells = _dated(cells)
    texts, numbers = _texts(cells[2:])
    if texts is None or not (texts and _TYPE.fullmatch(texts[0])):
        return None
    halves = _halves(numbers, like, text)
    if halves is None:
        return None
    root, *both = halves
    out, within = (_timing(half, texts[0]) if half else None for half in both)
    redop = texts[1] if len(texts) > 1 else None
    return Row(int(cells[0]), int(cells[1]), texts[0], redop, root, out, within)


def broken_off(text: str) -> tuple[str, str]:
    """Split a line into the cells of a row that it begins with and other output behind them; both may be empty."""
    cells = _CELLS.match(text)
    return (cells[0], text[cells.end() :]) if cells else ("", text)


def no_numbers(text: str, like: Shape | None) -> tuple[NoNumber, ...]:
    """Cells that `read` accepts although a number belongs there."""
    cells = _dated(text.split())
    halves = _halves(_texts(cells[2:])[1], like, text)
    named = zip(("out_of_place", "in_place"), halves[1:] if halves else (), strict=False)
    return tuple(
        NoNumber(int(cells[0]), name, column, cell)
        for name, half in named
        for column, cell in zip(COLUMNS, half or (), strict=False)
        if not _NUMBER.fullmatch(cell) and cell != "N/A"
    )


def _dated(cells: list[str]) -> list[str]:
    """Strip a trailing date and time."""
    return cells[:-2] if len(cells) > 3 and _DATE.fullmatch(cells[-2]) else cells


def _texts(cells: list[str]) -> tuple[list[str] | None, list[str]]:
    """Type and operation, and the remaining cells; None for the words if more than two come."""
    count = 0
    while count < len(cells) and _WORD.fullmatch(cells[count]) and not NOT_FINITE.fullmatch(cells[count]):
        count += 1
    return (cells[:count] if count <= 2 else None), cells[count:]


def _halves(cells: list[str], like: Shape | None, text: str) -> tuple[int | None, list[str] | None, list[str]] | None:
    """Root, out-of-place and in-place cells; None if they are incomplete or not in the heading's order."""
    for width in (_PLAIN, _PER_ITERATION):
        for halves in (2, 1):
            roots = len(cells) - halves * width
            if roots not in (0, 1) or (like and (like.root != bool(roots) or like.per_iteration != (width != _PLAIN))):
                continue
            if halves == 1 and not _BLANK_HALF.search(text):
                continue
            root = _root(cells[0]) if roots else None
            rest = cells[roots:]
            if (roots and root is None) or not all(_numbers(rest[i : i + width]) for i in range(0, len(rest), width)):
                continue
            return root, (rest[:width] if halves == 2 else None), rest[-width:]
    return None


def _root(cell: str) -> int | None:
    return int(cell) if _COUNT.fullmatch(cell.removeprefix("-")) else None


def _numbers(half: list[str]) -> bool:
    """Return True if a half has its numbers, or nan and inf; the fourth, wrong values, may be N/A or unreadable."""
    numbers = all(_NUMBER.fullmatch(cell) or NOT_FINITE.fullmatch(cell) for i, cell in enumerate(half) if i != 3)
    wrong = (half[3] == "N/A", *(kind.fullmatch(half[3]) for kind in (_NUMBER, NOT_FINITE, _UNREADABLE)))
    return numbers and any(wrong)


def _timing(half: list[str], kind: str) -> Timing | None:
    """One half; None if its time or a bandwidth is not a number, so that nothing was measured."""
    if any(NOT_FINITE.fullmatch(cell) for cell in half[:3]):
        return None
    return Timing(float(half[0]), float(half[1]), float(half[2]), wrong(half[3], kind), _iterations(half[_PLAIN:]))


def _iterations(cells: list[str]) -> Iterations | None:
    """Iteration times from the cells i_min i_max i_p99 i_cv%, in that order."""
    if len(cells) != _PER_ITERATION - _PLAIN or not all(map(_NUMBER.fullmatch, cells)):
        return None
    least, most, p99, cv = map(float, cells)
    return Iterations(least, None, p99, most, cv)


def wrong(cell: str, kind: str) -> float | None:
    """Number of wrong values; old versions print the largest deviation (5e-07), which is 0 if within tolerance.

    A larger deviation is returned unchanged: it is above 0, and no more is known.
    """
    if not _NUMBER.fullmatch(cell):
        return None
    value = float(cell)
    return 0.0 if 0 < value < 1 and value <= _TOLERANCE.get(kind, 0.0) else value


def agrees(row: Row) -> bool:
    """Return True if size, count, time and bandwidth are consistent; a wrongly joined row is not."""
    if row.redop not in _OPERATIONS or (row.size_bytes and not _counts(row.size_bytes, row.count or 0, row.type or "")):
        return False
    for half in (row.out_of_place, row.in_place):
        if half is not None and half.time_us > 0 and half.algbw_gbs >= 0.1:
            off = abs(row.size_bytes / half.time_us / 1e3 - half.algbw_gbs)
            if off > 0.01 * half.algbw_gbs + 0.011:
                return False
    return True


def _counts(size: int, count: int, kind: str) -> bool:
    """Return True if this count of values has this size: all of them, or those of each rank."""
    return count > 0 and size % (count * _BYTES.get(kind, 1)) == 0
