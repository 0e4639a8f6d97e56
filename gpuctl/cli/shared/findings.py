"""Findings as plain lines: the worst first, and what is the same of several nodes said once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import output

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding

MOST_ALIKE = 8  # findings of one rule and verdict; of more only how many there are


def show(findings: Sequence[Finding], err: bool = False) -> None:
    """On standard output, or on standard error; each advice once below what it is for."""
    from gpuctl.domain.findings import worst_first

    rules: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for one in worst_first(findings):
        alike = rules.setdefault((one.verdict, one.check), {})
        alike.setdefault((one.message, one.hint), []).append(one.subject)
    for (verdict, rule), groups in rules.items():
        shown = list(groups.items())[:MOST_ALIKE]
        for (says, advice), subjects in shown:
            where = output.names(subjects) + ": " if subjects[0] else ""
            click.echo(f"{verdict:8} {rule:15} {where}{says}", err=err)
            if advice and verdict != "OK" and (says, advice) == _last_with(advice, shown):
                click.echo(f"{'':24} {advice}", err=err)
        if rest := [subject for _, subjects in list(groups.items())[MOST_ALIKE:] for subject in subjects]:
            note = f"the same kind of {output.names(rest, MOST_ALIKE)}; --output json tells of each"
            click.echo(f"{verdict:8} {rule:15} {note}", err=err)


def _last_with(advice: str, shown: Sequence[tuple[tuple[str, str], list[str]]]) -> tuple[str, str]:
    return [text for text, _ in shown if text[1] == advice][-1]
