"""bootstrap gpu-node: bring GPU hosts to the stack that their site wants."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import click

from gpuctl.cli.gpu_node import rollout
from gpuctl.cli.gpu_node.plan import stack_file
from gpuctl.cli.hosts.carry_out import carry_out
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.gpu_node.rollout import RolloutRequest
from gpuctl.workflows.gpu_node_apply import ANSWER_S, ApplyRequest


@dataclass(frozen=True)
class BootstrapRequest:
    """Hosts to bring to their stack, and the steps of a roll-out."""

    change: ApplyRequest = field(default_factory=ApplyRequest)
    steps: RolloutRequest = field(default_factory=RolloutRequest)


batches = options.together(
    click.option(
        "--batch",
        type=options.Share(counts=True),
        help="Hosts to change and verify at a time.  [default: all; 1 with --drain or --reboot]",
    ),
    click.option(
        "--max-fail",
        type=options.Share(),
        help="Share of a batch that may fail before the roll-out stops.  [default: 0%]",
    ),
)


drain = options.together(
    click.option(
        "--drain",
        type=click.Choice(["kubernetes", "slurm"]),
        help="Drain hosts before they change: evict their pods, or wait for their jobs. Those that verify are taken "
        "back, unless somebody else has drained them.",
    ),
    options.other_context("Kubernetes context of the nodes, for --drain kubernetes."),
    click.option(
        "--drain-limit",
        type=options.Duration(),
        default="1h",
        show_default=True,
        help="Time in which a node must be empty; nothing is killed, and it stays drained.",
    ),
    click.option("--bare-pods", is_flag=True, help="Also evict pods without a controller, which do not come back."),
    click.option("--delete-emptydir-data", is_flag=True, help="Also evict pods with data in emptyDir volumes."),
)


@click.command("gpu-node")
@options.as_request(
    BootstrapRequest,
    options.inventory,
    options.limit,
    stack_file,
    options.check,
    options.diff,
    batches,
    drain,
    click.option("--reboot", is_flag=True, help="Reboot hosts whose running module is not the installed one."),
    click.option(
        "--reboot-limit",
        type=options.Duration(),
        default="30m",
        show_default=True,
        help="Time in which a host must be back; large machines take long to check their memory.",
    ),
    options.deep("Also have DCGM diagnose each host at this level before it takes jobs again."),
    options.nccl("Also run all_reduce over the GPUs of each host by itself before it takes jobs again."),
    options.visit("host", ANSWER_S),
    click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation of the plan."),
    report_options,
)
def bootstrap(request: BootstrapRequest, diff: bool, yes: bool, form: Form, metrics: Path | None) -> None:
    """Install the driver, fabric services, container toolkit, DCGM and EFA that `gpuctl gpu-node plan` decides.

    The plan is shown first. A host that it refuses stays as it is. An installation that was interrupted earlier is
    completed. `gpuctl rollback --only gpu_stack` restores packages, holds, pins and files. Exit code 1 if a host is
    refused or failed, 3 if one was not reached.

    With --batch, --max-fail, --drain, --reboot, --deep or --nccl it is a roll-out: hosts change batch by batch, each is
    verified by its tools, and the next batch starts only if at most --max-fail of the last one failed. A host that
    fails stays drained. After an interruption the same command goes on.
    """
    if request.steps.is_set and not request.change.check:
        rollout.roll_out(request.change, request.steps, yes, form, metrics)
    _change_at_once(request.change, diff, yes, form, metrics)


def _change_at_once(request: ApplyRequest, diff: bool, yes: bool, form: Form, metrics: Path | None) -> None:
    from gpuctl.workflows.gpu_node_apply import prepare

    check_folder(metrics)
    if not (request.check or yes or sys.stdin.isatty()):
        wrong = "standard input is not a terminal, so the plan cannot be confirmed"
        raise InvalidInput("change the stack of GPU hosts", wrong, "add --yes, or --check to see the plan")
    prepared = prepare(request, datetime.now().astimezone().date(), output.unreached)
    if form == "table":
        rollout.show_plan(prepared)
    if prepared.due and not request.check:
        options.confirm(f"\nChange {output.names(prepared.due)}?", yes)
    carry_out(prepared.run, "bootstrap gpu-node", diff, form, metrics)
