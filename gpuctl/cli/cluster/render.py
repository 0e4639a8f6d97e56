"""cluster render: the Kubernetes objects of a cluster file."""

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
    help="The network between pods.  [default: rdma if the file enables it]",
)
@click.option("--nodes", type=click.IntRange(1), help="The number of pods.  [default: gpus.default_nodes]")
@click.option("--environment", metavar="NAME", default="", help="The environment's name.  [default: from the file]")
@click.option("--single", is_flag=True, help="Render the standalone pod, NAME-single, instead.")
@click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="Format of the objects.",
)
def render(name: str, mode: Any, nodes: int | None, environment: str, single: bool, form: str) -> None:
    """Print the Kubernetes objects of an environment, without contacting a cluster.

    The Secret is printed empty: `gpuctl cluster deploy` generates its passwords and keys, and no output shows them.
    """
    from gpuctl.cluster import manifests
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.cluster.environment import EnvironmentRequest
    from gpuctl.cluster.environment import environment as make_environment
    from gpuctl.cluster.manifests import as_yaml

    env = make_environment(locate.cluster(name), EnvironmentRequest(mode, nodes, environment, single=single))
    listed = manifests.everything(env)
    click.echo(as_yaml.as_yaml(listed) if form == "yaml" else as_yaml.as_json(listed), nl=False)
