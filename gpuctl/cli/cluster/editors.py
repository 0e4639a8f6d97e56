"""cluster vscode and jupyter: the address and password of an environment's editors."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.exit_codes import PROBLEMS
from gpuctl.domain.findings import Verdict

if TYPE_CHECKING:
    from gpuctl.cluster.editors import Editor, EditorStatus

local_port = click.option(
    "--local", type=click.IntRange(1, 65535), help="The local port.  [default: as in the pod, or the next free one]"
)


@click.command()
@selected
@click.option("--password", is_flag=True, help="Print only its password.")
@local_port
@options.output
def vscode(request: EnvironmentSelection, password: bool, local: int | None, form: Output) -> None:
    """Show the address of VS Code in the first pod.

    Without a Route or Ingress, its port is forwarded until Ctrl-C; not with --output json or yaml.
    """
    from gpuctl.cluster.editors import VS_CODE

    _open(request, VS_CODE, password, local, form)


@click.command()
@selected
@click.option("--token", is_flag=True, help="Print only its token.")
@local_port
@options.output
def jupyter(request: EnvironmentSelection, token: bool, local: int | None, form: Output) -> None:
    """Show the address of Jupyter in the first pod.

    Without a Route or Ingress, its port is forwarded until Ctrl-C; not with --output json or yaml.
    """
    from gpuctl.cluster.editors import JUPYTER_LAB

    _open(request, JUPYTER_LAB, token, local, form, secret="token")  # noqa: S106 - the name of the option


def _open(
    request: EnvironmentSelection,
    editor: Editor,
    only_secret: bool,
    local: int | None,
    form: Output,
    secret: str = "password",  # noqa: S107 - the name of the option
) -> None:
    from gpuctl.cluster import editors
    from gpuctl.cluster.access import open_lasting_access

    if only_secret and form != "table":
        raise click.UsageError(f"--{secret} does not go with --output: a stored document would contain it")
    access = open_lasting_access(request)
    if only_secret:
        click.echo(editors.password(access.cluster, access.env, editor))
        return
    status = editors.inspect(access.cluster, access.env, editor)
    if form != "table":
        output.data({**asdict(status), "verdict": str(status.verdict)}, form)
        raise click.exceptions.Exit(0 if status.verdict is Verdict.OK else PROBLEMS)
    _show(status, f"{editor.title} of {access.env.name}", secret)
    if status.address or status.verdict is Verdict.FAIL:
        raise click.exceptions.Exit(0 if status.verdict is Verdict.OK else PROBLEMS)
    from gpuctl.cli.cluster.forward import keep_forwarding
    from gpuctl.workflows.forward import PortRequest

    port = PortRequest(editor.port(access.env), local or 0, editor.name)
    raise click.exceptions.Exit(keep_forwarding(access, [port]))


def _show(status: EditorStatus, editor: str, secret: str) -> None:
    runs = {"OK": f"runs in {status.pod}", "FAIL": "does not run"}.get(str(status.verdict), "UNKNOWN")
    click.echo(f"{editor}: {runs}" + (f": {status.why}" if status.why else ""))
    if status.closed:
        click.echo(f"not reached from outside: {status.closed}")
    if status.address:
        click.echo(f"address: {status.address}")
    if status.verdict is not Verdict.FAIL:
        click.echo(f"{secret}: the same command with --{secret} prints it")
