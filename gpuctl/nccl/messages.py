"""Text and row helpers shared by rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuctl.core.text import named
from gpuctl.nccl.model import Row, Run, Timing
from gpuctl.nccl.parsing.outcome import kind

Numbers = Mapping[str, float | int | str | None]
GROWN = 0.5  # of the best bandwidth of a run: below it a size measures latency, and is too small to be judged
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size(size_bytes: int) -> str:
    """4 GiB; 1000 B if no unit divides it, except above 1 GiB: 25.5 GiB."""
    for unit, name in UNITS:
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes > 1 << 30 else f"{size_bytes} B"


def flag(size_bytes: int) -> str:
    """A size as nccl-tests and `gpuctl nccl run` take it: 16G, 512M, 1000."""
    for unit, name in UNITS:
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name[0]}"
    return str(size_bytes)


def sizes(sizes_bytes: Iterable[int]) -> str:
    """Span of several sizes."""
    every = sorted(set(sizes_bytes))
    return size(every[0]) if len(every) == 1 else f"{size(every[0])} to {size(every[-1])}"


def names(items: Iterable[str], most: int = 8) -> str:
    """First names in order, and the number of others."""
    return named(sorted(set(items)), most)


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def halves(row: Row) -> Iterator[tuple[str, Timing]]:
    """Printed halves of a row, out of place first."""
    for name, half in (("out-of-place", row.out_of_place), ("in-place", row.in_place)):
        if half is not None:
            yield name, half


def grown(rows: Sequence[Row]) -> list[Row]:
    """Rows, sorted by size, from the first that reaches half of the best bandwidth."""
    best = [max((half.busbw_gbs for _, half in halves(row)), default=0.0) for row in rows]
    peak = max(best, default=0.0)
    first = next((at for at, speed in enumerate(best) if peak and speed >= GROWN * peak), len(rows))
    return list(rows[first:])


def sizes_measured(run: Run) -> int:
    """Number of sizes measured, for the type, operation and root with the fewest."""
    return min(Counter(map(kind, run.rows)).values(), default=0)


def by_kind(run: Run) -> list[list[Row]]:
    """Rows of each type, operation and root, sorted by size: those of different kinds say nothing about each other."""
    rows: dict[tuple[object, ...], list[Row]] = {}
    for row in by_size(run):
        rows.setdefault(kind(row), []).append(row)
    return list(rows.values())


def by_size(run: Run) -> list[Row]:
    """Rows sorted by size, without empty messages."""
    return sorted((row for row in run.rows if row.size_bytes > 0), key=lambda row: row.size_bytes)
