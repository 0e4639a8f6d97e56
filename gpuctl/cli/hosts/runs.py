"""runs: what was done, when, by whom."""

from __future__ import annotations

import click

from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.core import run_history


@click.group("runs", cls=Group, invoke_without_command=True)
@options.output
@click.pass_context
def group(context: click.Context, form: Output) -> None:
    """List what gpuctl changed from this machine, oldest first; `show RUN` tells one in full."""
    if context.invoked_subcommand:
        return
    found = [run_history.load(name) for name in run_history.names()]
    if form != "table":
        output.data([{**vars(run), "hosts": sorted(run.hosts)} for run in found], form)
        return
    rows = [(r.name, r.by, len(r.hosts), r.exit_code, " ".join(r.command)) for r in found]
    output.table(("RUN", "BY", "HOSTS", "EXIT", "COMMAND"), rows)


@group.command()
@click.argument("name")
@click.option("--output", "-o", "form", type=click.Choice(["yaml", "json"]), help="How to print it.  [default: yaml]")
@click.pass_context
def show(context: click.Context, name: str, form: Output | None) -> None:
    """Show one run: how each host stood, and what changed there."""
    of_group = context.parent.params["form"] if context.parent else "table"
    output.data(vars(run_history.load(name)), form or ("json" if of_group == "json" else "yaml"))
