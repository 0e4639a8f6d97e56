"""tune-nodes, drift, rollback."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.hosts.carry_out import carry_out
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.hosts.model import RollbackRequest, TuneRequest

if TYPE_CHECKING:
    from gpuctl.hosts.plan import Plan


@click.command("tune-nodes")
@options.as_request(
    TuneRequest,
    options.inventory,
    options.profile,
    options.limit,
    options.check,
    options.diff,
    options.strict,
    options.allow_busy,
    click.option("--reboot", is_flag=True, help="Reboot hosts that need it, one at a time."),
    options.batches,
    options.carrier,
    options.yes,
    report_options,
)
def tune_nodes(request: TuneRequest, diff: bool, yes: bool, form: Form, metrics: Path | None) -> None:
    """Tune hosts to a profile. Only settings that differ are changed; `gpuctl rollback` undoes them."""
    _confirm_this_machine(request.inventory, yes or request.check)
    _run("tune-nodes", request, diff, form, metrics)


@click.command()
@options.as_request(
    TuneRequest,
    options.inventory,
    options.profile,
    options.limit,
    options.diff,
    options.strict,
    options.carrier,
    report_options,
)
def drift(request: TuneRequest, diff: bool, form: Form, metrics: Path | None) -> None:
    """Compare hosts with a profile, and those with a gpu_stack also with that; change nothing.

    The exit code is 1 if a host differs.
    """
    _run("drift", replace(request, check=True), diff, form, metrics)


@click.command()
@options.as_request(
    RollbackRequest,
    options.inventory,
    options.limit,
    click.option(
        "--to", metavar="RECORD", default="", help="Go back only to the state right after this record of a host."
    ),
    click.option("--only", metavar="KNOB", multiple=True, help="Only this setting, kind or pattern; may be repeated."),
    options.check,
    options.diff,
    click.option("--force", is_flag=True, help="Also undo settings that somebody else has changed since."),
    options.allow_busy,
    options.batches,
    options.carrier,
    options.yes,
    report_options,
)
def rollback(request: RollbackRequest, diff: bool, yes: bool, form: Form, metrics: Path | None) -> None:
    """Restore the values that hosts had before gpuctl, from the records that each host keeps."""
    _confirm_this_machine(request.inventory, yes or request.check)
    _run("rollback", request, diff, form, metrics)


def _run(command: str, request: TuneRequest | RollbackRequest, diff: bool, form: Form, metrics: Path | None) -> None:
    """Carry out a request and print its report; exits with the code of the results."""
    from gpuctl.hosts.inventory import DEFAULT
    from gpuctl.hosts.plan import plan

    check_folder(metrics)
    with output.slow_notice(f"reading the inventory {request.inventory or DEFAULT}"):
        planned = plan(request)
    if command == "drift" and isinstance(request, TuneRequest):
        planned = _with_stack(planned, request)
    carry_out(planned, command, diff, form, metrics)


def _with_stack(planned: Plan, request: TuneRequest) -> Plan:
    """The comparison with the software stack of GPU hosts that have a gpu_stack."""
    from gpuctl.workflows.gpu_node_apply import with_stack

    today = datetime.now().astimezone().date()
    return with_stack(planned, today, lambda _: None, forks=request.run.forks, timeout_s=request.run.timeout)


def _confirm_this_machine(inventory: str | None, confirmed: bool) -> None:
    """Ask before this machine is changed: a missing --inventory may be a mistake."""
    if confirmed or inventory is not None:
        return
    if not sys.stdin.isatty():
        wrong = "standard input is not a terminal, so it cannot be confirmed"
        raise InvalidInput("change this machine", wrong, "add --yes, or name an inventory")
    click.confirm("No --inventory: change this machine?", abort=True)
