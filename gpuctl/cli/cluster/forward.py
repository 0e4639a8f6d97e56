"""cluster forward: forward local ports to a pod."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.cluster.shell import rank
from gpuctl.cli.shared import options
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from gpuctl.cluster.access import PodAccess
    from gpuctl.kube.forward.state_machine import Line
    from gpuctl.workflows.forward import PortRequest


@click.command()
@selected
@rank
@options.probe_every
@click.argument("args", metavar="[[LOCAL:]PORT|vscode|jupyter|tensorboard|debug]...", nargs=-1)
def forward(request: EnvironmentSelection, rank: int | None, probe_every: float, args: tuple[str, ...]) -> None:
    """Forward local ports to a pod, by name (from the cluster file) or number, until Ctrl-C.

    Without names: VS Code, Jupyter and TensorBoard. The ports listen on 127.0.0.1 only; if a port is in use, the
    next free one is used. A broken forward is restarted, and a replaced pod is followed.
    """
    from gpuctl.cluster.access import open_lasting_access
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.workflows import forward as flow

    ports = flow.parse_ports(args, locate.cluster(request.name).ports)
    raise click.exceptions.Exit(keep_forwarding(open_lasting_access(request), ports, rank or 0, probe_every))


def keep_forwarding(access: PodAccess, ports: Sequence[PortRequest], rank: int = 0, probe_every: float = 5.0) -> int:
    """Forward until interrupted, after printing each address."""
    from gpuctl.cli.shared.forward_display import Lines, Table
    from gpuctl.kube.forward import flow
    from gpuctl.workflows.forward import addresses
    from gpuctl.workflows.forward import request as forward_request

    view = Table() if sys.stdout.isatty() else Lines()
    reported = False

    def show(lines: Sequence[Line], trouble: str) -> None:
        nonlocal reported
        if not reported:
            for text in addresses(lines, ports):
                click.echo(text, err=True)
            reported = True
        view.show(lines, trouble)

    flow.run(forward_request(access, ports, rank), show, probe_every)
    click.echo("all forwards ended", err=True)
    return INTERRUPTED
