"""Print findings as every command prints them: the worst first, a line for equal findings of several subjects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import output
from gpuctl.engine import printable

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding

MOST_ALIKE = 8  # messages of one check and verdict; the subjects of the others are only listed
VERDICT_WIDTH, CHECK_WIDTH = 8, 15  # at least: a longer name widens the column for all lines


def show(findings: Sequence[Finding], *, err: bool = False, indent: str = "", most: int | None = MOST_ALIKE) -> None:
    """Print to standard output, or with `err` to standard error. `most`: see MOST_ALIKE; None prints all messages."""
    for line in lines(findings, most):
        click.echo(indent + printable(line), err=err)


def lines(findings: Sequence[Finding], most: int | None = MOST_ALIKE) -> Iterator[str]:
    """Columns: verdict, check, then "subjects: message". Each hint stands once, below the last line it belongs to."""
    return (line for line, _ in entries(findings, most))


def entries(findings: Sequence[Finding], most: int | None = MOST_ALIKE) -> Iterator[tuple[str, Finding]]:
    """Lines as in `lines`, with the finding of each; equal findings are one, whose subject names all of theirs."""
    from gpuctl.domain.findings import Verdict, worst_first

    width = max([CHECK_WIDTH, *(len(finding.check) for finding in findings)])
    checks: dict[tuple[str, str], list[Finding]] = {}
    for finding in worst_first(findings):
        checks.setdefault((finding.verdict, finding.check), []).append(finding)
    for (verdict, check), alike in checks.items():
        head = f"{verdict:{VERDICT_WIDTH}} {check:{width}}"
        shown, more = _groups(alike, most)
        for number, finding in enumerate(shown):
            text = f"{finding.subject}: {finding.message}" if finding.subject else finding.message
            yield f"{head} {text}", finding
            repeated = any(later.hint == finding.hint for later in shown[number + 1 :])
            if finding.hint and not repeated and finding.verdict is not Verdict.OK:
                yield f"{'':{len(head)}} hint: {finding.hint}", finding
        if more:
            yield f"{head} similar: {output.names(more, MOST_ALIKE)}; --output json lists all", shown[-1]


def _groups(findings: Sequence[Finding], most: int | None) -> tuple[list[Finding], list[str]]:
    """The first groups of equal findings, and the subjects of the groups that are left out."""
    from gpuctl.domain.findings import group_by_subject

    groups = group_by_subject(findings)
    shown = groups[:most]
    texts = {(finding.message, finding.hint) for finding in shown}
    return shown, [finding.subject for finding in findings if (finding.message, finding.hint) not in texts]
