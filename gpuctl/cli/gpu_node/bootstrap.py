"""bootstrap gpu-node: bring GPU hosts to the stack that their site wants."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.gpu_node.plan import show, stack_file, unreached
from gpuctl.cli.hosts.carry_out import carry_out
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.workflows.gpu_node_apply import ANSWER_S, ApplyRequest

if TYPE_CHECKING:
    from gpuctl.workflows.gpu_node_apply import Prepared


@click.command("gpu-node")
@options.as_request(
    ApplyRequest,
    options.inventory,
    options.limit,
    stack_file,
    options.check,
    options.diff,
    options.batches,
    options.visit("host", ANSWER_S),
    click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation of the plan."),
    report_options,
)
def bootstrap(request: ApplyRequest, diff: bool, yes: bool, form: Form, metrics: Path | None) -> None:
    """Install the driver, fabric services, container toolkit, DCGM and EFA that `gpuctl gpu-node plan` decides.

    The plan is shown first. A host that it refuses stays as it is. An installation that was interrupted earlier is
    completed. `gpuctl rollback --only gpu_stack` restores packages, holds, pins and files. Exit code 1 if a host is
    refused or failed, 3 if one was not reached.
    """
    from gpuctl.workflows.gpu_node_apply import prepare

    check_folder(metrics)
    if not (request.check or yes or sys.stdin.isatty()):
        wrong = "standard input is not a terminal, so the plan cannot be confirmed"
        raise InvalidInput("change the stack of GPU hosts", wrong, "add --yes, or --check to see the plan")
    prepared = prepare(request, datetime.now().astimezone().date(), output.unreached)
    if form == "table":
        _show_plan(prepared)
    if prepared.due and not request.check:
        options.confirm(f"\nChange {output.names(prepared.due)}?", yes)
    carry_out(prepared.run, "bootstrap gpu-node", diff, form, metrics)


def _show_plan(prepared: Prepared) -> None:
    for host, packages in prepared.repaired.items():
        click.echo(f"{host}: dpkg had been interrupted, and has completed {output.names(packages) or 'nothing'}")
    fleet = prepared.fleet
    show(fleet, [*unreached(fleet), *(finding for made in fleet.plans for finding in made.findings)])
    click.echo()
