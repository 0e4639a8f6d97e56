"""cluster forward: forward local ports to a pod."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from gpuctl.cli.cluster.environment_options import which
from gpuctl.cli.cluster.shell import open_access, rank
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.shared import options


@click.command()
@which
@rank
@options.probe_every
@click.argument("args", metavar="[[LOCAL:]PORT|vscode|jupyter|tensorboard|debug]...", nargs=-1)
def forward(name: str, rank: int | None, probe_every: float, args: tuple[str, ...], **params: Any) -> None:
    """Forward local ports to a pod, by name (from the cluster file) or number, until Ctrl-C.

    Without names: VS Code, Jupyter and TensorBoard. The ports listen on 127.0.0.1 only; if one is taken, on the next
    free port. A broken forward is restarted, and a replaced pod is followed.
    """
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.workflows import forward as flow

    ports = flow.parse_ports(args, locate.cluster(name).ports)
    raise click.exceptions.Exit(go(open_access(name, params), ports, rank or 0, probe_every))


def go(access: Any, ports: Sequence[Any], rank: int = 0, probe_every: float = 5.0) -> int:
    """Forward until interrupted, after printing each address."""
    from gpuctl.cli.shared.forward_display import Lines, Table
    from gpuctl.kube.forward import flow
    from gpuctl.workflows.forward import addresses, request

    view = Table() if sys.stdout.isatty() else Lines()
    reported = False

    def show(lines: Sequence[Any], trouble: str) -> None:
        nonlocal reported
        if not reported:
            for text in addresses(lines, ports):
                click.echo(text, err=True)
            reported = True
        view.show(lines, trouble)

    flow.run(request(access, ports, rank), show, probe_every)
    click.echo("all forwards ended", err=True)
    return INTERRUPTED
