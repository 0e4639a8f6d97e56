"""cluster forward: ports of a pod on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from gpuctl.cli.cluster.environment_options import which
from gpuctl.cli.cluster.shell import open_door, rank
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.shared import options


@click.command()
@which
@rank
@options.probe_every
@click.argument("words", metavar="[[LOCAL:]PORT|vscode|jupyter|tensorboard|debug]...", nargs=-1)
def forward(name: str, rank: int | None, probe_every: float, words: tuple[str, ...], **given: Any) -> None:
    """Forward local ports to a pod, by their names in the cluster file or by number, until Ctrl-C.

    Without a name VS Code, Jupyter and TensorBoard. They listen on this machine alone (127.0.0.1); where a port is
    taken here, on the next free one. A forward that breaks is begun anew, and a pod that is replaced is followed.
    """
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.workflows import forward as flow

    asked = flow.wishes(words, locate.cluster(name).ports)
    raise click.exceptions.Exit(go(open_door(name, given), asked, rank or 0, probe_every))


def go(door: Any, asked: Sequence[Any], rank: int = 0, probe_every: float = 5.0) -> int:
    """Forward until it is ended, having said where what is reached."""
    from gpuctl.cli.shared.forward_display import Lines, Table
    from gpuctl.kube.forward import flow
    from gpuctl.workflows.forward import addresses, request

    view = Table() if sys.stdout.isatty() else Lines()
    told = False

    def show(lines: Sequence[Any], trouble: str) -> None:
        nonlocal told
        if not told:
            for text in addresses(lines, asked):
                click.echo(text, err=True)
            told = True
        view.show(lines, trouble)

    flow.run(request(door, asked, rank), show, probe_every)
    click.echo("all forwards ended", err=True)
    return INTERRUPTED
