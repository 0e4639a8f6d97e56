"""tune-nodes, drift, rollback."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.errors import OutputUnread
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import INTERRUPTED
from gpuctl.hosts.model import RollbackRequest, TuneRequest

if TYPE_CHECKING:
    from gpuctl.cli.hosts.report import Progress
    from gpuctl.core.run_history import RunRecord


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
    """Compare hosts with a profile and change nothing. The exit code is 1 if a host differs."""
    _run("drift", replace(request, check=True), diff, form, metrics)


@click.command()
@options.as_request(
    RollbackRequest,
    options.inventory,
    options.limit,
    click.option(
        "--to", metavar="RECORD", default="", help="Go back only to the state right after this record of a host."
    ),
    click.option("--only", metavar="KNOB", multiple=True, help="Only this setting or pattern; may be repeated."),
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
    """Put hosts back to the values before gpuctl, from the records that each host keeps."""
    _confirm_this_machine(request.inventory, yes or request.check)
    _run("rollback", request, diff, form, metrics)


def _run(command: str, request: TuneRequest | RollbackRequest, diff: bool, form: Form, metrics: Path | None) -> None:
    """Carry out a request, record the run and print its report; exits with the code of the results."""
    from gpuctl.cli.hosts.report import Progress, ReportOptions, show
    from gpuctl.core import run_history
    from gpuctl.hosts import judge
    from gpuctl.hosts.inventory import DEFAULT
    from gpuctl.hosts.plan import plan

    check_folder(metrics)
    with output.slow_notice(f"reading the inventory {request.inventory or DEFAULT}"):
        planned = plan(request)
    record, run = run_history.new(sys.argv[1:]), ""
    job, drifts = planned.job, command == "drift"
    hosts = [host.name for host in planned.hosts]
    with Progress(hosts, lambda progress: _begin(record, progress), strict=job.strict) as progress:
        try:
            progress.finish(planned.run(progress))
        finally:
            if not job.check:
                run = _finish(record, progress)
    code = judge.exit_code(progress.results, strict=job.strict, drift=drifts)
    shown = ReportOptions(form, metrics, command, job.check, diff, job.strict, drifts, planned.reasons)
    try:
        show(progress.results, shown, run, planned.inventory, code)
    except BrokenPipeError as error:  # the output is not read any more: the exit code still gives the result
        raise OutputUnread(code) from error
    raise click.exceptions.Exit(code)


def _begin(record: RunRecord, progress: Progress) -> None:
    """Write the run to the history before its hosts are changed, so that a killed run is in it."""
    from gpuctl.hosts.plan import save_run, unrecorded

    try:
        save_run(record, None, progress.results, progress.unfinished)
    except OSError as error:
        raise unrecorded(error) from error


def _finish(record: RunRecord, progress: Progress) -> str:
    """Complete the run in the history, also an interrupted one; "" if that fails."""
    from gpuctl.hosts import judge
    from gpuctl.hosts.plan import save_run

    interrupted = isinstance(sys.exception(), KeyboardInterrupt)
    code = INTERRUPTED if interrupted else judge.exit_code(progress.results, strict=progress.strict)
    try:
        return save_run(record, code, progress.results, progress.unfinished)
    except OSError as error:  # the report of the hosts matters more
        click.echo(f"gpuctl: no record of this run: {error}", err=True)
        return ""


def _confirm_this_machine(inventory: str | None, confirmed: bool) -> None:
    """Ask before this machine is changed: a missing --inventory may be a mistake."""
    if confirmed or inventory is not None:
        return
    if not sys.stdin.isatty():
        wrong = "standard input is not a terminal, so it cannot be confirmed"
        raise InvalidInput("change this machine", wrong, "add --yes, or name an inventory")
    click.confirm("No --inventory: change this machine?", abort=True)
