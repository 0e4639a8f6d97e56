"""A page as Markdown: for tickets and wikis. Drawings are left out, as Markdown has none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuctl.domain.findings import Finding
from gpuctl.pages.page import Page, Table, merged, number

SPECIAL = re.compile(r"([\\`*_\[\]<>|])")


def render(page: Page) -> str:
    """Render the page as Markdown (CommonMark with the tables of GitHub)."""
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"# {_text(page.title)}"
    yield ""
    yield _text(page.about)
    for section in page.sections:
        yield ""
        yield f"## {_text(section.title)}"
        for paragraph in section.text:
            yield ""
            yield _text(paragraph)
        if section.findings is not None:
            yield ""
            yield from _findings(merged(section.findings))
        for table in section.tables:
            yield ""
            yield from _table(table)


def _findings(findings: list[Finding]) -> Iterator[str]:
    for one in findings:
        subject = f"{one.subject}: " if one.subject else ""
        hint = f"Hint: {one.hint}" if one.hint else ""
        yield f"- **{one.verdict}** {_text(one.check)}: {_text(f'{subject}{one.message}. {hint}'.removesuffix('. '))}"


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield _text(table.caption)
        yield ""
    yield f"| {' | '.join(map(_text, table.headers))} |"
    rules = ("---:" if column in table.numeric else "---" for column in range(len(table.headers)))
    yield f"| {' | '.join(rules)} |"
    for row in table.rows:
        cells = (number(value) if value is None or isinstance(value, float) else str(value) for value in row)
        yield f"| {' | '.join(map(_text, cells))} |"


def _text(text: str) -> str:
    """Text on one line, without characters that Markdown would take for marks, or HTML."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
