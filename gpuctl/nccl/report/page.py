"""Page of a measurement: it can be mailed, attached to a ticket, and read offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.domain.findings import Finding
from gpuctl.nccl.model import LaunchResult
from gpuctl.nccl.report import matrix, plots
from gpuctl.pages.page import Page, Section, render


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
    return render(Page(content.title, content.at, [Section("Findings", findings=content.findings), *sections(content)]))


def sections(content: Content) -> list[Section]:
    """All that was measured; findings are not among them."""
    pairs = matrix.pair_matrix(content.results)
    drawn = [plots.bandwidth(content.results, content.bars), plots.pairs(pairs), plots.nodes(pairs)]
    return [*(section for section in drawn if section is not None), plots.runs(content.results)]
