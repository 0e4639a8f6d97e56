"""A page made of sections: findings, tables and drawings. One file that can be mailed, printed and read offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from gpuctl.domain.findings import Finding, worst_first


@dataclass(frozen=True)
class Table:
    """Rows of text; None is a value that nobody measured. `numeric`: columns that are aligned to the right.

    `caption` says what a row is. `bars`: column -> the value that fills its cell with a bar, for numeric columns.
    `folded`: shown only when the reader opens it.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]
    caption: str = ""
    numeric: frozenset[int] = frozenset()
    bars: dict[int, float] = field(default_factory=dict)
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading and what is below it, in this order: text, drawing (SVG), legend, findings, tables.

    `legend`: the style of each mark, with "fill:" in front for a square, and its text.
    """

    title: str
    text: Sequence[str] = ()
    drawing: Markup | None = None
    legend: Sequence[tuple[str, str]] = ()
    findings: Sequence[Finding] | None = None
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Page:
    """A title, a line about when and how its content was measured, and the sections."""

    title: str
    about: str
    sections: Sequence[Section]


def render(page: Page) -> str:
    """Render the page as HTML."""
    sections = [
        section if section.findings is None else replace(section, findings=merged(section.findings))
        for section in page.sections
    ]
    return _template().render(page=replace(page, sections=sections))


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the worst first; those that differ only in their subject are one with all subjects."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for one in worst_first(findings):
        alike.setdefault((one.verdict, one.check, one.message, one.hint), []).append(one)
    return [
        ones[0] if len(ones) == 1 else replace(ones[0], subject="; ".join(one.subject for one in ones), numbers={})
        for ones in alike.values()
    ]


def number(value: float | None) -> str:
    """Format a measured value; "?" for one that nobody measured."""
    return "?" if value is None else f"{value:.1f}"


def _cell(value: str | float | None) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = _cell
    return environment.from_string(resources.files(__package__).joinpath("page.html").read_text())
