"""A roll-out of bootstrap gpu-node: plan, confirmation, progress and report."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuctl.cli.gpu_node.plan import show, unreached
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.engine import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuctl.gpu_node.rollout import Outcome, RolloutRequest
    from gpuctl.workflows.gpu_node_apply import ApplyRequest, Prepared

HEAD = ("HOST", "BATCH", "STATE", "NOTE")
GOES_ON = "gpuctl: the same command goes on from here; hosts that it has drained stay so until then"


def roll_out(request: ApplyRequest, steps: RolloutRequest, yes: bool, form: Form, metrics: Path | None) -> NoReturn:
    """Change hosts batch by batch, verify them, and print the report; exits with the code of the outcomes."""
    from gpuctl.domain.report import Report
    from gpuctl.workflows import gpu_node_rollout
    from gpuctl.workflows.gpu_node_apply import prepare

    check_folder(metrics)
    if not (yes or sys.stdin.isatty()):
        wrong = "standard input is not a terminal, so the plan cannot be confirmed"
        raise InvalidInput("change the stack of GPU hosts", wrong, "add --yes, or --check to see the plan")
    started, today = time.monotonic(), datetime.now().astimezone().date()
    fleet = prepare(request, today, output.unreached, repairs=False)
    work = gpu_node_rollout.Rollout(request, steps, today, output.unreached, lambda line: click.echo(line, err=True))
    planned = work.plan(fleet)
    if form == "table":
        show_plan(fleet)
        _show_batches(planned)
    if planned:
        names = output.names([host for batch in planned for host in batch])
        options.confirm(f"\nRoll out to {names}{_drains(steps)}?", yes)
    try:
        outcomes = work.carry_out(planned, sys.argv[1:])
    except (KeyboardInterrupt, GpuctlError):
        for outcome in work.results:
            click.echo(printable(f"{outcome.host}: {outcome.as_finding().message}"), err=True)
        click.echo(GOES_ON, err=True)
        raise
    target = str(request.inventory or "localhost")
    rows = [row for outcome in outcomes for row in (outcome.as_finding(), *outcome.findings)]
    hosts = [outcome.as_dict() for outcome in outcomes]
    details = {"run": work.run or None, "hosts": hosts, "left_out": list(fleet.fleet.left_out)}
    seconds = round(time.monotonic() - started, 3)
    report = Report("bootstrap gpu-node", {target: rows}, details, seconds=seconds, code=work.exit_code)
    publish(report, form, metrics, lambda: _show(outcomes, work.run))
    raise click.exceptions.Exit(report.exit_code)


def _drains(steps: RolloutRequest) -> str:
    scheduler = {"slurm": "Slurm", "kubernetes": f"the Kubernetes context {steps.context}"}
    return f", draining them in {scheduler[steps.drain]}" if steps.drain else ""


def _show_batches(planned: Sequence[Sequence[str]]) -> None:
    for number, batch in enumerate(planned, 1):
        click.echo(f"batch {number} of {len(planned)}: {output.names(batch)}")


def _show(outcomes: Sequence[Outcome], run: str) -> None:
    rows = [(one.host, one.batch or "-", one.state, printable(one.note)) for one in outcomes]
    output.table(HEAD, rows)
    findings.show([one.as_finding() for one in outcomes if one.exit_code])
    if run:
        click.echo(f"run {run}; `gpuctl runs show {run}` has the details")


def show_plan(prepared: Prepared) -> None:
    """Print the plan of a fleet."""
    for host, packages in prepared.repaired.items():
        click.echo(f"{host}: dpkg or rpm had been interrupted, and has completed {output.names(packages) or 'nothing'}")
    fleet = prepared.fleet
    show(fleet, [*unreached(fleet), *(finding for made in fleet.plans for finding in made.findings)])
    click.echo()
