"""nccl clean: remove objects of killed runs from a Kubernetes cluster."""

from __future__ import annotations

import click

from gpuctl.cli.nccl import target_options
from gpuctl.cli.shared import output


@click.command()
@target_options.context
@target_options.namespace
def clean(context: str, namespace: str) -> None:
    """Remove the Kubernetes objects of your killed runs, once their time limit has passed."""
    from gpuctl.nccl.runners.kube import leftovers

    removed = leftovers.remove_leftovers(context, namespace)
    click.echo(f"removed {output.plural(len(removed), 'run')}" + (f": {', '.join(removed)}" if removed else ""))
