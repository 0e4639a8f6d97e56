"""Options that select the environment of a `gpuctl cluster` command, and the environment they select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.cluster.environment import Environment
    from gpuctl.edges.kube.cluster import Cluster

name = click.argument("name", metavar="NAME|FILE")
which_one = options.together(
    click.option("--environment", metavar="NAME", default="", help="The environment's name.  [default: from the file]"),
    click.option("--single", is_flag=True, help="The standalone pod, NAME-single."),
)
which = options.together(name, which_one, options.context)


def environment_of(name: str, selection: dict[str, Any]) -> Environment:
    """Return the selected environment, without contacting a cluster."""
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.cluster.environment import EnvironmentRequest, environment

    return environment(
        locate.cluster(name), EnvironmentRequest(name=selection["environment"], single=selection["single"])
    )


def on_cluster(name: str, selection: dict[str, Any]) -> tuple[Cluster, Environment]:
    """Return the selected environment and a connection to its cluster."""
    from gpuctl.cluster.deploy.flow import connect

    env = environment_of(name, selection)
    return connect(env.cluster, selection["context"]), env
