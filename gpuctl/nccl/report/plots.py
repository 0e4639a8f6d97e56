"""Sections of the page: bandwidth by size, the map of pairs, and the nodes among their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuctl.core.text import plural
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import LaunchResult, Row
from gpuctl.nccl.report.matrix import Cell, Matrix, node_summaries
from gpuctl.pages import heat_map, line_chart
from gpuctl.pages.heat_map import HeatMap
from gpuctl.pages.line_chart import Chart, Line, in_units
from gpuctl.pages.page import Section, Table, number

STYLES = ("s1", "s2", "s3", "s4", "s5", "s6")
SLOW = 0.95  # of the median of the runs alike: what is below is drawn by name
SLOWEST_PAIRS = 20
MOST_RUNS = 50  # more are shown when the reader opens them
# Least share of the median pair's speed, class of the cell, text of the legend: the slower, the more it stands out.
SHADES = (
    (0.95, "h0", "95 % of the median pair and more"),
    (0.90, "h1", "90 to 95 %"),
    (0.80, "h2", "80 to 90 %"),
    (0.50, "h3", "50 to 80 %"),
    (0.0, "h4", "less than 50 %"),
)
FAILED, NOT_MEASURED = "failed", "none"


@dataclass(frozen=True)
class Bar:
    """Baseline at a message size in GB/s: expected, warn and fail limits; None if the baseline has no such limit."""

    size_bytes: int
    expect: float | None
    warn: float | None
    fail: float | None


def bandwidth(results: Sequence[LaunchResult], bars: Sequence[Bar]) -> Section | None:
    """Bus bandwidth by message size, one line per run; None if no run has rows."""
    drawn = [end for end in results if end.run.rows]
    if not drawn:
        return None
    named, slow = _named(drawn)
    rest = [end for end in drawn if not any(end is one for one in named)]
    lines = [Line(run_name(end), "other thin", _points(end)) for end in rest]
    lines += [Line(run_name(end), style, _points(end)) for end, style in zip(named, STYLES, strict=False)]
    legend = [(style, run_name(end)) for end, style in zip(named, STYLES, strict=False)]
    if rest:
        also_slow = f", {slow - len(named)} of them slow, too" if slow > len(named) else ""
        legend.append(("other", f"{plural(len(rest), 'other run')}{also_slow}"))
    for limit in ("expect", "warn", "fail"):
        heights = [(bar.size_bytes, getattr(bar, limit)) for bar in bars]
        if any(height is not None for _, height in heights):
            style = f"limit {limit}"
            lines.append(Line(f"baseline: {limit}", style, heights))
            legend.append((style, f"baseline: {limit}"))
    title = "Bus bandwidth by message size"
    drawing = line_chart.svg(Chart(f"{title}; the table below has the values", "busbw, GB/s", lines))
    table = _values(named or drawn[: len(STYLES)])
    return Section(title, drawing=drawing, legend=legend, tables=[table])


def _named(drawn: Sequence[LaunchResult]) -> tuple[list[LaunchResult], int]:
    """Runs that are drawn by name, and how many are slow: all if they are few, else the slowest of the slow ones."""
    if len(drawn) <= len(STYLES):
        return list(drawn), 0
    alike: dict[tuple[object, ...], list[float]] = {}
    for end in drawn:
        alike.setdefault(_kind(end), []).append(speed(end.run) or 0.0)
    shares = [(speed(end.run) or 0.0, median(alike[_kind(end)]), end) for end in drawn]
    slow = [(value / usual if usual else 1.0, end) for value, usual, end in shares if value < SLOW * usual]
    return [end for _, end in sorted(slow, key=lambda one: one[0])[: len(STYLES)]], len(slow)


def _kind(end: LaunchResult) -> tuple[object, ...]:
    return end.run.collective, len(end.launch.nodes), bool(end.launch.rail)


def _points(end: LaunchResult) -> list[tuple[int, float | None]]:
    return [(row.size_bytes, _busbw(row)) for row in end.run.rows if row.size_bytes > 0]


def _values(runs: Sequence[LaunchResult]) -> Table:
    by_run = [dict(_points(end)) for end in runs]
    sizes = sorted({size for values in by_run for size in values})
    rows = [[in_units(size), *(values.get(size) for values in by_run)] for size in sizes]
    headers = ["message size", *map(run_name, runs)]
    numeric = frozenset(range(1, len(headers)))
    return Table(headers, rows, "Bus bandwidth of the named runs in GB/s", numeric, folded=True)


def _busbw(row: Row) -> float | None:
    half = row.out_of_place or row.in_place
    return half.busbw_gbs if half else None


def run_name(end: LaunchResult) -> str:
    """Label of a run: up to two nodes by name, more by their number."""
    nodes = end.launch.nodes
    where = " + ".join(nodes) if 0 < len(nodes) <= 2 else f"{len(nodes)} nodes" if nodes else "unknown nodes"
    return " ".join(word for word in (end.run.collective or "", where, end.launch.rail) if word)


def pairs(matrix: Matrix) -> Section | None:
    """Map of all pairs and a table of the slowest; None if no pair ran."""
    if not matrix.cells:
        return None
    worst = {summary.node for summary in node_summaries(matrix)[: heat_map.MOST_NAMES]}
    names = [node for node in matrix.nodes if node in worst]
    text = [f"The median pair reaches {number(matrix.usual)} GB/s."]
    if len(names) < len(matrix.nodes):
        hidden = len(matrix.nodes) - len(names)
        text.append(f"The map has the {len(names)} nodes that stand worst; {hidden} others are not drawn.")
    title = "Map of pairs; the table below has the slowest"
    drawing = heat_map.svg(HeatMap(title, names, lambda one, other: _shade(matrix.cell(one, other), matrix.usual)))
    entries = [(f"fill:{style}", text) for _, style, text in SHADES]
    entries += [(f"fill:{FAILED}", "failed, no result"), (f"fill:{NOT_MEASURED}", "not measured")]
    return Section("Pairs of nodes", text, drawing, entries, tables=[_slowest(matrix)])


def _shade(cell: Cell | None, usual: float | None) -> str:
    if cell is None:
        return NOT_MEASURED
    if cell.speed is None or usual is None:
        return FAILED
    share = cell.speed / usual if usual else 1.0
    return next(style for least, style, _ in SHADES if share >= least)


def _slowest(matrix: Matrix) -> Table:
    place = {node: number for number, node in enumerate(matrix.nodes)}
    cells = {tuple(sorted(pair, key=place.__getitem__)): cell for pair, cell in matrix.cells.items()}

    def rank(pair: tuple[str, ...]) -> tuple[float, list[int]]:
        speed_gbs = cells[pair].speed
        return (-1.0 if speed_gbs is None else speed_gbs), [place[node] for node in pair]

    worst = sorted(cells, key=rank)[:SLOWEST_PAIRS]
    rows = [
        (" + ".join(pair), cells[pair].speed, _percent(cells[pair].speed, matrix.usual), cells[pair].failed)
        for pair in worst
    ]
    caption = f"The slowest {len(rows)} of {len(cells)} pairs" if len(rows) < len(cells) else "All pairs, slowest first"
    headers = ("pair", "GB/s", "% of the median", "failed runs")
    return Table(headers, rows, caption, frozenset({1, 2, 3}))


def _percent(value: float | None, usual: float | None) -> float | None:
    return None if value is None or not usual else 100 * value / usual


def nodes(matrix: Matrix) -> Section | None:
    """Each node among its pairs, the worst first; None if no pair ran."""
    if not matrix.cells:
        return None
    rows = [[s.node, s.runs, s.failed, s.median_gbs, s.lowest_gbs, s.slowest_with] for s in node_summaries(matrix)]
    headers = ("node", "runs", "failed", "median, GB/s", "slowest, GB/s", "with")
    bars = dict.fromkeys((3, 4), 1.1 * matrix.usual) if matrix.usual else {}
    return Section("Nodes", tables=[Table(headers, rows, "Each node over its pairs", frozenset({1, 2, 3, 4}), bars)])


def runs(results: Sequence[LaunchResult]) -> Section:
    """All runs with their outcomes and causes."""
    rows = [[run_name(e), str(e.run.outcome), speed(e.run), e.seconds, e.run.cause or ""] for e in results]
    headers = ("run", "outcome", "median GB/s of the largest sizes", "seconds", "cause")
    caption = plural(len(rows), "run")
    return Section("Runs", tables=[Table(headers, rows, caption, frozenset({2, 3}), folded=len(rows) > MOST_RUNS)])
