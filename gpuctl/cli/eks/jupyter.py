"""eks jupyter: Jupyter of a GPU pod, forwarded over ssh."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gpuctl.cli.eks import pod_options
from gpuctl.cli.eks.pod_options import PodPlace
from gpuctl.cli.shared import options, output


@dataclass(frozen=True)
class JupyterCommand:
    """Inputs of `eks jupyter`. `local`: None for the pod's number, or the next free one."""

    place: PodPlace
    token: bool
    local: int | None


@click.command()
@options.as_request(
    JupyterCommand,
    pod_options.selected,
    click.option("--token", is_flag=True, help="Print only its token."),
    options.local_port,
)
def jupyter(request: JupyterCommand) -> None:
    """Forward Jupyter of the pod to 127.0.0.1 over ssh, until Ctrl-C.

    The pod must have been made with --jupyter. No port of the pod is open to others. The exit code is that of ssh.
    """
    from gpuctl.eks.gpu_pod.scripts import JUPYTER_PORT
    from gpuctl.workflows import eks_pod, eks_pod_jupyter, eks_ssh

    place = pod_options.find(request.place)
    cluster = place.connect()
    pod = eks_pod.running(cluster, place, f"use Jupyter of {place.pod}")
    if request.token:
        click.echo(eks_pod_jupyter.token(cluster, place, pod))
        return
    eks_pod_jupyter.check(place, pod)
    local = eks_pod_jupyter.local_port(request.local)
    entry = eks_ssh.write_entry(cluster, place, pod)
    output.jupyter_address(local)
    raise click.exceptions.Exit(eks_ssh.forward(entry, local, JUPYTER_PORT))
