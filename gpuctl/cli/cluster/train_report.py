"""Output of cluster train: check results, the pods' output, and how the training ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings, output, report
from gpuctl.cli.shared.output import Output
from gpuctl.domain.findings import Finding, fail, unknown

if TYPE_CHECKING:
    from gpuctl.cluster.train.flow import EndResult
    from gpuctl.cluster.train.prepare import Ready
    from gpuctl.cluster.train.watch import Failure


def ready(plan: Ready, env: str, form: Output, check: bool) -> None:
    """Show the check results; with `check`, each pod's command, too."""
    from gpuctl.cluster.train import launch
    from gpuctl.domain.report import Report

    launch_plan = plan.launch
    commands = {plan.pods[rank].pod: launch.command(launch_plan, rank) for rank in launch_plan.starts}
    if form != "table":
        more = {"folder": launch_plan.folder, "variables": list(launch.variables(launch_plan)), "commands": commands}
        details = {"launcher": launch_plan.launcher, "why": plan.why, **more}
        report.data(Report("cluster train", {env: plan.findings}, details), form)
        return
    findings.show(plan.findings)
    if plan.why:
        click.echo(f"launcher: {launch_plan.launcher}: {plan.why}", err=True)
    if check and not plan.failed:
        for pod, argv in commands.items():
            click.echo(f"{pod}: {launch.shown(argv)}")


class Screen:
    """Shows the first pod's lines unchanged, those of other pods with the pod's name."""

    def __init__(self, first: str, all_output: bool) -> None:
        self.first, self.all_output = first, all_output

    def shows(self, pod: str) -> bool:
        return self.all_output or pod == self.first

    def printed(self, pod: str, line: str) -> None:
        if self.shows(pod):
            name = "" if pod == self.first else f"{pod}: "
            click.echo(f"{name}{line}", nl=not line.endswith("\r"))
            sys.stdout.flush()

    def note(self, pod: str, text: str) -> None:
        click.echo(f"{pod}: {text}", err=True)


def failure(failed: Failure, screen: Screen) -> None:
    """Name the failed pod and print its last output if that was not shown yet."""
    for line in () if screen.shows(failed.pod) else failed.last:
        click.echo(f"{failed.pod}: {line.rstrip()}", err=True)
    last = f": {failed.exception}" if failed.exception else ""
    last += "; its last output is above" if failed.last else "; it printed nothing"
    findings.show([fail("exit", failed.pod, f"{failed.description}{last}")], err=True)


def gone(results: Sequence[EndResult]) -> bool:
    """Report which pods are confirmed clean; return whether all are."""
    confirmed = [result.pod for result in results if result.confirmed]
    if confirmed:
        click.echo(f"no process of it is left in {output.names(confirmed)}", err=True)
    unconfirmed = [result for result in results if not result.confirmed]
    findings.show([_unconfirmed(result) for result in unconfirmed], err=True)
    return not unconfirmed


def _unconfirmed(result: EndResult) -> Finding:
    why = result.wrong or f"still running:  {', '.join(result.left)}"
    return unknown("exit", result.pod, f"not confirmed to have ended: {why}", hint="--stop tries again")
