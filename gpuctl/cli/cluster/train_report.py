"""How cluster train shows what it found, what is printed in the pods, and how it ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster import deploy_report as show
from gpuctl.cli.shared import output
from gpuctl.cli.shared.output import Output

if TYPE_CHECKING:
    from gpuctl.cluster.train.flow import Gone
    from gpuctl.cluster.train.prepare import Ready
    from gpuctl.cluster.train.watch import Failure


def ready(found: Ready, form: Output, check: bool) -> None:
    """What was found; with `check` what each pod would run, too."""

    from gpuctl.cluster.train import launch
    from gpuctl.domain.findings import group_by_subject

    asked = found.launch
    commands = {found.pods[rank].pod: launch.command(asked, rank) for rank in asked.starts}
    if form != "table":
        more = {"folder": asked.folder, "variables": list(launch.variables(asked)), "commands": commands}
        output.data(
            {
                "launcher": asked.launcher,
                "why": found.why,
                **more,
                "findings": [finding.as_dict() for finding in found.findings],
            },
            form,
        )
        return
    show.findings(group_by_subject(found.findings))
    if found.why:
        click.echo(f"launcher: {asked.launcher}: {found.why}", err=True)
    if check and not found.failed:
        for pod, argv in commands.items():
            click.echo(f"{pod}: {launch.shown(argv)}")


class Screen:
    """The first pod's lines as they are, those of others with their pod's name."""

    def __init__(self, first: str, all_output: bool) -> None:
        self.first, self.all_output = first, all_output

    def shows(self, pod: str) -> bool:
        return self.all_output or pod == self.first

    def printed(self, pod: str, line: str) -> None:
        if self.shows(pod):
            name = "" if pod == self.first else f"{pod}: "
            click.echo(f"{name}{line}", nl=not line.endswith("\r"))
            sys.stdout.flush()

    def note(self, pod: str, words: str) -> None:
        click.echo(f"{pod}: {words}", err=True)


def failure(found: Failure, screen: Screen) -> None:
    """Who failed, and the last of it where that was not shown yet."""
    for line in () if screen.shows(found.pod) else found.last:
        click.echo(f"{found.pod}: {line.rstrip()}", err=True)
    last = "; above is the last that it printed" if found.last else "; it had printed nothing"
    click.echo(f"FAIL {found.pod}: {found.words}{last}", err=True)


def gone(found: Sequence[Gone]) -> bool:
    """What is confirmed, and whether that is all."""
    sure = [each.pod for each in found if each.confirmed]
    if sure:
        click.echo(f"nothing of it is left in {output.names(sure)}", err=True)
    for each in found:
        if not each.confirmed:
            why = each.wrong or f"still there: {', '.join(each.left)}"
            click.echo(f"UNKNOWN {each.pod}: not confirmed to have ended: {why}; --stop tries again", err=True)
    return len(sure) == len(found)
