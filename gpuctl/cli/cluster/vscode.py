"""cluster vscode: where VS Code of an environment is reached, and its password."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import which
from gpuctl.cli.cluster.shell import open_door
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.domain.findings import Verdict

if TYPE_CHECKING:
    from gpuctl.cluster.vscode import Standing

PROBLEMS = 1


@click.command()
@which
@click.option("--password", is_flag=True, help="Print its password, and nothing else.")
@click.option("--local", type=click.IntRange(1, 65535), help="The local port.  [default: as in the pod, or the next]")
@options.output
def vscode(name: str, password: bool, local: int | None, form: Output, **given: Any) -> None:
    """Say whether VS Code runs in the first pod, and where: its Route or Ingress, else a forward until Ctrl-C.

    With --output json or yaml nothing is forwarded.
    """
    from gpuctl.cluster import vscode as editor

    if password and form != "table":
        raise click.UsageError("--password goes with no --output: what is kept of that would hold it")
    door = open_door(name, given)
    if password:
        click.echo(editor.password(door.cluster, door.env))
        return
    found = editor.look(door.cluster, door.env)
    if form != "table":
        output.data({**asdict(found), "verdict": str(found.verdict)}, form)
        raise click.exceptions.Exit(0 if found.verdict is Verdict.OK else PROBLEMS)
    _show(found, door.env.name)
    if found.address or found.verdict is Verdict.FAIL:
        raise click.exceptions.Exit(0 if found.verdict is Verdict.OK else PROBLEMS)
    from gpuctl.cli.cluster.forward import go
    from gpuctl.workflows.forward import Wish

    raise click.exceptions.Exit(go(door, [Wish(door.env.cluster.ports.vscode, local or 0, editor.NAME)]))


def _show(found: Standing, name: str) -> None:
    runs = {"OK": f"runs in {found.pod}", "FAIL": "does not run"}.get(str(found.verdict), "UNKNOWN")
    click.echo(f"VS Code of {name}: {runs}" + (f": {found.why}" if found.why else ""))
    if found.closed:
        click.echo(f"not reached from outside: {found.closed}")
    if found.address:
        click.echo(f"address: {found.address}")
    if found.verdict is not Verdict.FAIL:
        click.echo("password: the same command with --password prints it")
