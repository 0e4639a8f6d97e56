"""cluster vscode: the address and password of an environment's VS Code."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.domain.findings import PROBLEMS, Verdict

if TYPE_CHECKING:
    from gpuctl.cluster.vscode import EditorStatus


@click.command()
@selected
@click.option("--password", is_flag=True, help="Print only its password.")
@click.option(
    "--local", type=click.IntRange(1, 65535), help="The local port.  [default: as in the pod, or the next free one]"
)
@options.output
def vscode(request: EnvironmentSelection, password: bool, local: int | None, form: Output) -> None:
    """Show the address of VS Code in the first pod.

    Without a Route or Ingress, its port is forwarded until Ctrl-C; not with --output json or yaml.
    """
    from gpuctl.cluster import vscode as editor
    from gpuctl.cluster.access import open_lasting_access

    if password and form != "table":
        raise click.UsageError("--password does not go with --output: a stored document would contain it")
    access = open_lasting_access(request)
    if password:
        click.echo(editor.password(access.cluster, access.env))
        return
    status = editor.inspect(access.cluster, access.env)
    if form != "table":
        output.data({**asdict(status), "verdict": str(status.verdict)}, form)
        raise click.exceptions.Exit(0 if status.verdict is Verdict.OK else PROBLEMS)
    _show(status, access.env.name)
    if status.address or status.verdict is Verdict.FAIL:
        raise click.exceptions.Exit(0 if status.verdict is Verdict.OK else PROBLEMS)
    from gpuctl.cli.cluster.forward import keep_forwarding
    from gpuctl.workflows.forward import PortRequest

    raise click.exceptions.Exit(
        keep_forwarding(access, [PortRequest(access.env.cluster.ports.vscode, local or 0, editor.NAME)])
    )


def _show(status: EditorStatus, name: str) -> None:
    runs = {"OK": f"runs in {status.pod}", "FAIL": "does not run"}.get(str(status.verdict), "UNKNOWN")
    click.echo(f"VS Code of {name}: {runs}" + (f": {status.why}" if status.why else ""))
    if status.closed:
        click.echo(f"not reached from outside: {status.closed}")
    if status.address:
        click.echo(f"address: {status.address}")
    if status.verdict is not Verdict.FAIL:
        click.echo("password: the same command with --password prints it")
