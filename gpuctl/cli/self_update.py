"""self-update: the latest code in one step, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import options
from gpuctl.core.errors import InvalidInput
from gpuctl.engine import printable

if TYPE_CHECKING:
    from gpuctl.workflows.self_update import Update

MOST_LINES = 20


@click.command("self-update", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--check", is_flag=True, help="Show what would change, and change nothing; exit code 0.")
@click.option("--back", is_flag=True, help="Put the version before the last update back.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--then", is_flag=True, help="Afterwards run the new gpuctl with the command that follows.")
@click.argument("arguments", nargs=-1, metavar="[bootstrap …]", type=click.UNPROCESSED)
def self_update(check: bool, back: bool, yes: bool, then: bool, arguments: tuple[str, ...]) -> None:
    """Update gpuctl, where it came from a git checkout or from a package index by pip.

    Versions, commits, packages and new lines of the changelog are shown first. A version that does not start is taken
    back. With `--then bootstrap laptop`, the new gpuctl goes on with that command.
    """
    if bool(arguments) != then or (then and arguments[0] != "bootstrap"):
        raise InvalidInput("update gpuctl", "--then takes a bootstrap command", "--then bootstrap laptop")
    if back and (check or then):
        raise InvalidInput("update gpuctl", "--back cannot be combined with --check or --then", "leave one out")
    if back:
        _go_back(yes)
    else:
        _update(check, yes)
    if then and not check:
        from gpuctl.workflows.self_update import go_on

        go_on(arguments)


def _update(check: bool, yes: bool) -> None:
    from gpuctl.workflows import self_update as flow

    update = flow.plan(flow.environment())
    if update.is_empty:
        click.echo(f"gpuctl {update.old} is the latest version")
        return
    _show(update)
    if check:
        return
    options.confirm("Update?", yes)
    flow.apply(flow.environment(), update)
    click.echo(f"gpuctl {update.new} is installed; `gpuctl self-update --back` puts {update.old} back")


def _go_back(yes: bool) -> None:
    from gpuctl.workflows import self_update as flow

    record = flow.last()
    update = record.update
    place = f" ({update.start[:9]})" if update.start else ""
    click.echo(f"gpuctl {update.new} -> {update.old}{place}")
    options.confirm("Go back?", yes)
    flow.back(flow.environment(), record)
    click.echo(f"gpuctl {update.old} is back")


def _show(update: Update) -> None:
    where = f" in {update.folder}" if update.folder else ""
    click.echo(f"gpuctl {update.old} -> {update.new}{where}")
    packages = [f"{name} {before or '(new)'} -> {after}" for name, (before, after) in update.packages.items()]
    for title, lines in (("commits", update.commits), ("packages", packages), ("changelog", update.changes)):
        if lines:
            click.echo(f"\n{title}:")
            for line in lines[:MOST_LINES]:
                click.echo(f"  {printable(line)}")
            if len(lines) > MOST_LINES:
                click.echo(f"  and {len(lines) - MOST_LINES} more")
    click.echo()
