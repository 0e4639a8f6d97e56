"""incident read: the first failure in the logs of a job."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text_files import bounded_lines

if TYPE_CHECKING:
    from gpuctl.domain.job_log import JobLog

STDIN = "-"


@click.command("read")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--around", "lines", type=click.IntRange(0), default=0, metavar="N", help="Also print N lines before and after it."
)
@report_options
def read(paths: tuple[Path, ...], lines: int, form: Form, metrics: Path | None) -> None:
    """Read logs of distributed jobs: which failure came first, on which rank and node, and what only followed.

    Logs of torchrun, srun, mpirun and kubectl are read, with or without their labels; - is standard input. A log
    without a known failure is UNKNOWN: a rank that hangs prints nothing. Exit code 1 for FAIL and UNKNOWN.
    """
    from gpuctl.domain import job_log
    from gpuctl.domain.report import Report

    check_folder(metrics)
    if lines and STDIN in map(str, paths):
        raise InvalidInput("print the lines around a failure", "standard input is read once", "give the log as a file")
    logs = {str(path): job_log.read(_lines_of(path)) for path in dict.fromkeys(paths)}
    report = Report("incident read", {name: job_log.judge(log) for name, log in logs.items()})

    def show() -> None:
        for name, judged in report.targets.items():
            if len(logs) > 1:
                click.echo(f"{name}:")
            findings.show(judged, indent="  " if len(logs) > 1 else "", most=None)
            if lines:
                _show_context(Path(name), logs[name], lines)

    publish(report, form, metrics, show)
    sys.exit(report.exit_code)


def _lines_of(path: Path) -> Iterator[str]:
    """Lines of a file, one after the other; `InvalidInput` if it cannot be read."""
    try:
        if str(path) == STDIN:
            yield from bounded_lines(io.TextIOWrapper(sys.stdin.buffer, errors="replace"))
            return
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from bounded_lines(stream)
    except OSError as error:
        wrong = error.strerror or str(error)
        raise InvalidInput(f"read the log {path}", wrong, "give a file of a job's output, or -") from error


def _show_context(path: Path, log: JobLog, count: int) -> None:
    from gpuctl.domain.job_log import around
    from gpuctl.engine import printable

    if log.first is None:
        return
    click.echo(f"\nlines around line {log.first.line}:")
    for line in around(_lines_of(path), log.first, count):
        click.echo(printable("  " + line.rstrip("\r\n")))
