"""Plots of the page, made with plotly; names from logs are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import LaunchResult, Row
from gpuctl.nccl.report.matrix import Matrix, node_summaries

MOST_LINES = 12  # of more runs only the slowest are drawn in colour
SLOWEST = 3
COLOURS = [
    [0, "#b30000"],
    [0.7, "#fdae61"],
    [0.87, "#d9ef8b"],
    [1, "#1a9850"],
]  # fractions of the median pair's speed, up to 1.1
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True)
class Bar:
    """Baseline at a message size in GB/s: expected, warn and fail limits; None if the baseline has no such limit."""

    size_bytes: int
    expect: float | None
    warn: float | None
    fail: float | None


def bandwidth(results: Sequence[LaunchResult], bars: Sequence[Bar]) -> go.Figure | None:
    """Bus bandwidth by message size, one line per run; None if no run has rows."""
    drawn = [end for end in results if end.run.rows]
    if not drawn:
        return None
    by_speed = sorted(drawn, key=lambda end: speed(end.run) or 0.0)
    named = drawn if len(drawn) <= MOST_LINES else by_speed[:SLOWEST]
    figure = go.Figure()
    for end in sorted(drawn, key=lambda end: any(end is one for one in named)):  # labelled runs on top
        figure.add_trace(_line(end, thin=not any(end is one for one in named)))
    for name, dash in (("expect", "dot"), ("warn", "dash"), ("fail", "longdash")):
        if bars:
            heights = [getattr(bar, name) for bar in bars]
            sizes = [bar.size_bytes for bar in bars]
            figure.add_scatter(x=sizes, y=heights, name=f"baseline: {name}", line={"dash": dash, "color": "black"})
    sizes = sorted({row.size_bytes for end in drawn for row in end.run.rows if row.size_bytes > 0})
    ticks = sizes[:: max(1, len(sizes) // 12)]
    figure.update_xaxes(type="log", title="message size", tickvals=ticks, ticktext=[in_units(size) for size in ticks])
    figure.update_yaxes(title="busbw, GB/s", rangemode="tozero")
    return figure


def _line(end: LaunchResult, thin: bool) -> go.Scatter:
    rows = [row for row in end.run.rows if row.size_bytes > 0]
    style = {"width": 1, "color": "rgba(120,120,120,.4)"} if thin else {"width": 2}
    name = escape(run_name(end))
    return go.Scatter(
        x=[r.size_bytes for r in rows], y=[_busbw(r) for r in rows], name=name, line=style, showlegend=not thin
    )


def _busbw(row: Row) -> float | None:
    half = row.out_of_place or row.in_place
    return half.busbw_gbs if half else None


def run_name(end: LaunchResult) -> str:
    """Label of a run: up to two nodes by name, more by their number."""
    nodes = end.launch.nodes
    where = " + ".join(nodes) if 0 < len(nodes) <= 2 else f"{len(nodes)} nodes" if nodes else "unknown nodes"
    return " ".join(word for word in (end.run.collective or "", where, end.launch.rail) if word)


def pairs(matrix: Matrix) -> go.Figure | None:
    """Matrix of pairs; None if no pair has a result. Violet: failed; white: not measured."""
    if matrix.usual is None:
        return None
    names = [escape(node) for node in matrix.nodes]
    cells = [[matrix.cell(one, other) for other in matrix.nodes] for one in matrix.nodes]
    speeds = [[cell.speed if cell else None for cell in row] for row in cells]
    failed = [[cell.failed if cell and cell.speed is None else None for cell in row] for row in cells]
    heat = go.Heatmap(x=names, y=names, z=speeds, hovertemplate="%{y} and %{x}: %{z:.1f} GB/s<extra></extra>")
    heat.update(zmin=0, zmax=matrix.usual * 1.1, colorscale=COLOURS, hoverongaps=False)
    violet = go.Heatmap(x=names, y=names, z=failed, hovertemplate="%{y} and %{x}: %{z} failed<extra></extra>")
    violet.update(colorscale=[[0, "#5b3a9e"], [1, "#5b3a9e"]], showscale=False, hoverongaps=False)
    figure = go.Figure([heat, violet])
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def nodes(matrix: Matrix) -> go.Figure | None:
    """Median and slowest pair of each node, worst node first; None if no pair has a result."""
    if matrix.usual is None:
        return None
    summaries = node_summaries(matrix)
    names = [escape(summary.node) for summary in summaries]
    figure = go.Figure()
    figure.add_bar(x=names, y=[summary.median_gbs for summary in summaries], name="median of its pairs")
    lowest = [summary.lowest_gbs for summary in summaries]
    figure.add_scatter(x=names, y=lowest, name="its slowest pair", mode="markers", marker={"color": "black"})
    figure.add_hline(y=matrix.usual, line_dash="dot", annotation_text="median pair")
    figure.update_xaxes(type="category")
    figure.update_yaxes(title="GB/s", rangemode="tozero")
    return figure


def in_units(size: int) -> str:
    """1048576 -> "1 MiB", in the largest unit that gives a whole number."""
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
