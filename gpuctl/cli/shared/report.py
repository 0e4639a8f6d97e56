"""Print the report of a command that judges, as a table, JSON, YAML or JUnit XML, and write its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from gpuctl.cli.shared import files, options, output

if TYPE_CHECKING:
    from gpuctl.domain.report import Report

Form = Literal["table", "json", "yaml", "junit"]
METRICS = "write metrics to"

# Parameters: `form` and `metrics`.
report_options = options.together(
    click.option(
        "--output",
        "-o",
        "form",
        type=click.Choice(get_args(Form)),
        default="table",
        show_default=True,
        help="Output format; junit is for CI test reports.",
    ),
    click.option(
        "--metrics",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Also write Prometheus metrics to FILE (*.prom in node-exporter's textfile folder).",
    ),
)


def publish(report: Report, form: Form, metrics: Path | None, table: Callable[[], Any]) -> None:
    """Write the metrics, then print the report in its form; `table` prints it for people.

    The metrics come first: a closed pipe behind the output must not prevent them.
    """
    from gpuctl.domain import report as forms

    if metrics is not None:
        files.write(metrics, forms.metrics(report, time.time()), METRICS, files.READABLE)
    if form == "table":
        table()
    elif form == "junit":
        click.echo(forms.junit(report), nl=False)
    else:
        data(report, form)


def data(report: Report, form: output.Output) -> None:
    """Print a report as JSON or YAML; for commands that have no --metrics and no JUnit XML."""
    from gpuctl.domain.report import as_dict

    output.data(as_dict(report), form)


def check_folder(metrics: Path | None) -> None:
    """Raise InvalidInput if the metrics cannot be written, before a long command starts."""
    files.check_folder(metrics, METRICS)
