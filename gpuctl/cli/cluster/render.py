"""cluster render: the Kubernetes objects that a cluster file stands for."""

from __future__ import annotations

from typing import Any

import click

from gpuctl.cli.cluster.environment_options import name


@click.command()
@name
@click.option(
    "--mode",
    type=click.Choice(["rdma", "tcp"]),
    default=None,
    help="How pods reach each other.  [default: rdma where the file enables it]",
)
@click.option("--nodes", type=click.IntRange(1), help="How many pods.  [default: gpus.default_nodes]")
@click.option("--environment", metavar="NAME", default="", help="What the objects are called.  [default: as the file]")
@click.option("--single", is_flag=True, help="One pod that stands alone, NAME-single, instead of many.")
@click.option("--output", "-o", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def render(name: str, mode: Any, nodes: int | None, environment: str, single: bool, form: str) -> None:
    """Print the Kubernetes objects of an environment; no cluster is asked.

    The Secret is printed empty: `gpuctl cluster deploy` makes its passwords and keys, and nothing shows them.
    """
    from gpuctl.cluster import manifests
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.cluster.environment import Asked
    from gpuctl.cluster.environment import environment as made
    from gpuctl.cluster.manifests import as_yaml

    env = made(locate.cluster(name), Asked(mode, nodes, environment, single=single))
    listed = manifests.everything(env)
    click.echo(as_yaml.as_yaml(listed) if form == "yaml" else as_yaml.as_json(listed), nl=False)
