"""Carry out a planned run over hosts: progress, run history and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuctl.cli.errors import OutputUnread
from gpuctl.cli.shared.report import Form
from gpuctl.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from gpuctl.cli.hosts.report import Progress
    from gpuctl.core.run_history import RunRecord
    from gpuctl.hosts.plan import Plan


def carry_out(planned: Plan, command: str, diff: bool, form: Form, metrics: Path | None) -> NoReturn:
    """Carry out a run, record it and print its report; exits with the code of the results."""
    from gpuctl.cli.hosts.report import Progress, ReportOptions, show
    from gpuctl.core import run_history
    from gpuctl.hosts import judge

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
