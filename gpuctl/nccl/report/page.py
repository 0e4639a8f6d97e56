"""Self-contained HTML page of a measurement: it can be mailed, attached to a ticket, and read offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

import jinja2
import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from gpuctl.domain.findings import Finding
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import LaunchResult
from gpuctl.nccl.report import matrix, plots


@dataclass(frozen=True)
class Content:
    """Content of a page. `at`: when it was measured, as text; `bars`: the baseline, empty without one."""

    title: str
    at: str
    results: Sequence[LaunchResult]
    findings: Sequence[Finding]
    bars: Sequence[plots.Bar] = ()


def page(content: Content) -> str:
    """Render the page as HTML."""
    pairs = matrix.pair_matrix(content.results)
    drawn = {
        "Bus bandwidth by message size": plots.bandwidth(content.results, content.bars),
        "Pairs of nodes": plots.pairs(pairs),
        "Nodes": plots.nodes(pairs),
    }
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        resources.files(__package__).joinpath("page.html").read_text()
    )
    return template.render(
        content=replace(content, findings=_once(content.findings)),
        plots={title: _embedded(figure) for title, figure in drawn.items() if figure is not None},
        plotly=get_plotlyjs(),
        standings=matrix.node_summaries(pairs),
        runs=[(plots.run_name(end), end.run, speed(end.run), end.seconds) for end in content.results],
    )


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings that differ only in their subject; the plots show the numbers of each."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for one in findings:
        alike.setdefault((one.verdict, one.check, one.message, one.hint), []).append(one)
    return [
        ones[0] if len(ones) == 1 else replace(ones[0], subject="; ".join(one.subject for one in ones), numbers={})
        for ones in alike.values()
    ]


def _embedded(figure: go.Figure) -> str:
    figure.update_layout(template="plotly_white", margin={"t": 20}, legend={"orientation": "h", "y": -0.25})
    return str(to_html(figure, full_html=False, include_plotlyjs=False, config={"displaylogo": False}))
