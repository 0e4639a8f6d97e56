"""runs: the history of changes to hosts."""

from __future__ import annotations

from collections.abc import Sequence

import click

from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput
from gpuctl.core.run_history import RunRecord

HEAD = ("RUN", "ACTOR", "HOSTS", "EXIT", "COMMAND")


@click.group("runs", cls=Group, invoke_without_command=True)
@options.output
@click.pass_context
def group(context: click.Context, form: Output) -> None:
    """List the runs that changed hosts or acted on nodes from here, oldest first; `show RUN` prints one in full.

    A run that has not ended, or was killed, has no exit code.
    """
    if context.invoked_subcommand:
        return
    runs, damaged = load_all(run_history.names())
    if form == "table":
        output.table(HEAD, rows(runs))
    else:
        output.data([{**vars(run), "hosts": sorted(run.hosts)} for run in runs], form)
    if damaged:
        raise damaged[0]


def load_all(names: Sequence[str]) -> tuple[list[RunRecord], list[InvalidInput]]:
    """Runs whose records can be read, and why the others cannot."""
    runs: list[RunRecord] = []
    damaged: list[InvalidInput] = []
    for name in names:
        try:
            runs.append(run_history.load(name))
        except InvalidInput as error:
            damaged.append(error)
    return runs, damaged


def rows(runs: Sequence[RunRecord]) -> list[tuple[object, ...]]:
    """Cells of each run, below HEAD."""
    exits = ["-" if run.exit_code is None else run.exit_code for run in runs]
    return [(r.name, r.actor, len(r.hosts), code, " ".join(r.command)) for r, code in zip(runs, exits, strict=True)]


@group.command()
@click.argument("name", metavar="RUN")
@click.option("--output", "-o", "form", type=click.Choice(["yaml", "json"]), help="Output format.  [default: yaml]")
@click.pass_context
def show(context: click.Context, name: str, form: Output | None) -> None:
    """Show one run: the status of each host, and its changes."""
    group_form = context.parent.params["form"] if context.parent else "table"
    output.data(vars(run_history.load(name)), form or ("json" if group_form == "json" else "yaml"))
