"""tune-nodes, drift, rollback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuctl.cli.errors import INTERRUPTED, OutputUnread
from gpuctl.cli.shared import options
from gpuctl.cli.shared.report import Form, check_folder, report_options
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from gpuctl.cli.hosts.report import Progress, ReportOptions
    from gpuctl.hosts.flow import RunOptions
    from gpuctl.hosts.requests import Plan


@click.command("tune-nodes")
@options.inventory
@options.profile
@options.limit
@options.check
@options.diff
@options.strict
@options.allow_busy
@click.option("--reboot", is_flag=True, help="Reboot hosts that need it, one at a time.")
@options.batches
@options.carrier
@options.yes
@report_options
def tune_nodes(
    inventory: str | None,
    profile: str,
    limit: str,
    check: bool,
    diff: bool,
    strict: bool,
    allow_busy: bool,
    reboot: bool,
    batch: str,
    max_fail: str,
    forks: int,
    timeout: float,
    via: str | None,
    yes: bool,
    form: Form,
    metrics: Path | None,
) -> None:
    """Tune hosts to a profile. Only settings that differ are changed; `gpuctl rollback` undoes them."""
    from gpuctl.cli.hosts.report import ReportOptions
    from gpuctl.hosts.requests import TuneRequest, plan_tune

    run_options = _run_options(forks, timeout, via, batch, max_fail)
    request = TuneRequest(inventory, limit, profile, check, strict, allow_busy, reboot, run_options)
    _confirm_this_machine(inventory, yes or check)
    plan = plan_tune(request)
    shown = ReportOptions(form, metrics, "tune-nodes", check, diff, strict, reasons=plan.reasons)
    _run(plan, shown)


@click.command()
@options.inventory
@options.profile
@options.limit
@options.diff
@options.strict
@options.carrier
@report_options
def drift(
    inventory: str | None,
    profile: str,
    limit: str,
    diff: bool,
    strict: bool,
    forks: int,
    timeout: float,
    via: str | None,
    form: Form,
    metrics: Path | None,
) -> None:
    """Compare hosts with a profile and change nothing. The exit code is 1 if a host differs."""
    from gpuctl.cli.hosts.report import ReportOptions
    from gpuctl.hosts.requests import TuneRequest, plan_tune

    run_options = _run_options(forks, timeout, via)
    plan = plan_tune(TuneRequest(inventory, limit, profile, check=True, strict=strict, options=run_options))
    _run(plan, ReportOptions(form, metrics, "drift", True, diff, strict, drift=True, reasons=plan.reasons))


@click.command()
@options.inventory
@options.limit
@click.option("--to", metavar="RECORD", default="", help="Go back only to the state right after this record of a host.")
@click.option("--only", metavar="KNOB", multiple=True, help="Only this setting or pattern; may be repeated.")
@options.check
@options.diff
@click.option("--force", is_flag=True, help="Also undo settings that somebody else has changed since.")
@options.allow_busy
@options.batches
@options.carrier
@options.yes
@report_options
def rollback(
    inventory: str | None,
    limit: str,
    to: str,
    only: tuple[str, ...],
    check: bool,
    diff: bool,
    force: bool,
    allow_busy: bool,
    batch: str,
    max_fail: str,
    forks: int,
    timeout: float,
    via: str | None,
    yes: bool,
    form: Form,
    metrics: Path | None,
) -> None:
    """Put hosts back to the values before gpuctl, from the records that each host keeps."""
    from gpuctl.cli.hosts.report import ReportOptions
    from gpuctl.hosts.requests import RollbackRequest, plan_rollback

    run_options = _run_options(forks, timeout, via, batch, max_fail)
    request = RollbackRequest(inventory, limit, to, only, check, force, allow_busy, run_options)
    _confirm_this_machine(inventory, yes or check)
    _run(plan_rollback(request), ReportOptions(form, metrics, "rollback", check, diff))


def _run_options(
    forks: int, timeout: float, via: str | None, batch: str = "100%", max_fail: str = "100%"
) -> RunOptions:
    from gpuctl.hosts.flow import RunOptions

    return RunOptions(via or "", forks, timeout, batch, int(max_fail.rstrip("%")))


def _run(plan: Plan, shown: ReportOptions) -> None:
    """Run a plan, record it and print its report; exits with the code of the results."""
    from gpuctl.cli.hosts.report import Progress, show
    from gpuctl.hosts import judge

    check_folder(shown.metrics)
    run = ""
    with Progress([host.name for host in plan.hosts], shown.strict) as progress:
        try:
            progress.finish(plan.run(progress))
        finally:
            if not plan.job.check:
                run = _record(progress)
    code = judge.exit_code(progress.results, shown.strict, shown.drift)
    try:
        show(progress.results, shown, run, plan.inventory, code)
    except BrokenPipeError as error:  # nobody reads the output: the exit code still tells the result
        raise OutputUnread(code) from error
    raise click.exceptions.Exit(code)


def _record(progress: Progress) -> str:
    """Add the run to the history, also an interrupted one; "" if that fails."""
    from gpuctl.hosts import judge, requests

    interrupted = isinstance(sys.exception(), KeyboardInterrupt)
    code = INTERRUPTED if interrupted else judge.exit_code(progress.results, progress.strict)
    try:
        return requests.save_run(sys.argv[1:], code, progress.results, progress.unfinished)
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
