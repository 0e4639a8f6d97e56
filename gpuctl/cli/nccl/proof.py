"""Result of an isolation: its findings, and the runs that prove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuctl.cli.shared import findings, output
from gpuctl.cli.shared.report import Form, publish
from gpuctl.core.exit_codes import PROBLEMS

if TYPE_CHECKING:
    from gpuctl.nccl.isolate.model import Conclusion, Fleet, Round
    from gpuctl.nccl.isolate.observations import Observation
    from gpuctl.nccl.model import LaunchResult


@dataclass(frozen=True)
class Destination:
    """Output of a verdict. `target`: the nodes as named in the history, or a file of recorded runs.

    `strict`: WARN is a problem, too.
    """

    target: str
    form: Form
    metrics: Path | None
    strict: bool = False


def show_and_exit(fleet: Fleet, history: Sequence[LaunchResult], end: Conclusion | Round, to: Destination) -> NoReturn:
    """Print the result of these runs and exit; `end` is a round if they do not prove a verdict yet."""
    from gpuctl.nccl.isolate.model import Round

    if isinstance(end, Round):
        _unfinished(history, end, to)
    conclusion = end
    from gpuctl.domain.report import Report
    from gpuctl.nccl.isolate import serialize

    details = serialize.conclusion_as_dict(fleet, history, end)
    report = Report("nccl isolate", {to.target: end.findings}, details, to.strict)
    publish(report, to.form, to.metrics, lambda: _show(fleet, history, conclusion))
    raise click.exceptions.Exit(report.exit_code)


def _unfinished(history: Sequence[LaunchResult], following: Round, to: Destination) -> NoReturn:
    """Print the next round of an isolation without a verdict, and exit with 1."""
    from gpuctl.domain.report import Report

    runs = output.plural(len(following.launches), "run")
    details = {"finished": False, "runs": len(history), "next": following.why}
    publish(Report("nccl isolate", {to.target: []}, details, code=PROBLEMS), to.form, to.metrics, lambda: None)
    click.echo(f"not finished; next: {runs}: {following.why}", err=True)
    click.echo("`gpuctl nccl isolate --record` with this file and the same options continues it", err=True)
    raise click.exceptions.Exit(1)


def _show(fleet: Fleet, history: Sequence[LaunchResult], end: Conclusion) -> None:
    from gpuctl.nccl.isolate.observations import observe
    from gpuctl.nccl.isolate.verdict import supporting_runs

    findings.show(end.findings)
    evidence = observe(fleet, history)
    if never := [run for run in evidence.runs if run.start_failure]:
        click.echo("\nthe launches that never started:")
        output.table(
            ("RUN", "NODES", "WHY"), [(run.number + 1, output.names(run.nodes, 2), run.start_failure) for run in never]
        )
    for fault in end.faults:
        click.echo(f"\nthe runs about {fault.cause}:")
        bad = {*fault.bad, *fault.bad_over_one}
        runs = supporting_runs(fault, evidence)
        rows = [_row(run, run.number in bad) for run in runs]
        output.table(("RUN", "NODES", "ADAPTER", "GB/S", "BELOW USUAL", "HOW"), rows)
        for run in runs:
            if cause := history[run.number].run.cause if run.failed else None:
                click.echo(f"run {run.number + 1}: {cause}")
    if end.faults:
        click.echo(f"\nbad: {', '.join(str(fault.cause) for fault in end.faults)}")


def _row(run: Observation, bad: bool) -> tuple[object, ...]:
    gap = "-" if run.shortfall is None else f"{100 * run.slower_by:.0f} %"
    speed = "-" if run.gbs is None else f"{run.gbs:.1f}"
    how = ("never started" if run.start_failure else run.failed) or ("slow" if bad else "fine")
    return run.number + 1, ", ".join(run.nodes), run.rail or "all", speed, gap, how
