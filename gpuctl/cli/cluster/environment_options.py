"""The environment that a `gpuctl cluster` command is about: the options that name it, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.cluster.environment import Environment
    from gpuctl.edges.kube.cluster import Cluster

name = click.argument("name", metavar="NAME|FILE")
which_one = options.together(
    click.option("--environment", metavar="NAME", default="", help="Which environment.  [default: as the file]"),
    click.option("--single", is_flag=True, help="The pod that stands alone, NAME-single."),
)
which = options.together(name, which_one, options.context)


def environment_of(name: str, given: dict[str, Any]) -> Environment:
    """The one that is asked for; no cluster is asked."""
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.cluster.environment import Asked, environment

    return environment(locate.cluster(name), Asked(name=given["environment"], single=given["single"]))


def on_cluster(name: str, given: dict[str, Any]) -> tuple[Cluster, Environment]:
    """Its cluster, and the environment that is asked for."""
    from gpuctl.cluster.deploy.flow import connect

    env = environment_of(name, given)
    return connect(env.cluster, given["context"]), env
