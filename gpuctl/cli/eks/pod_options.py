"""Options that lead to a GPU pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuctl.cli.eks.destroy import place as name_and_region
from gpuctl.cli.eks.destroy import region
from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.workflows.eks_access import Place

POD = "gpu"


@dataclass(frozen=True)
class PodPlace:
    """A cluster by name or file, a pod in it, and how Kubernetes is reached."""

    cluster: str
    pod: str
    context: str
    namespace: str
    region: str
    aws_profile: str


cluster = click.argument("cluster", metavar="NAME|FILE")
where = options.together(
    click.option("--pod", metavar="POD", default=POD, show_default=True, help="Name of the pod."),
    options.other_context("Context of the kubeconfig, instead of asking AWS for the cluster."),
    click.option(
        "--namespace", "-n", metavar="NAME", default="", callback=options.not_empty, help="Namespace of the pod."
    ),
    region,
    options.aws_profile,
)
selected = options.together(cluster, where)
keys = options.public_keys


def find(request: PodPlace) -> Place:
    """The pod's place; with a context, the cluster's name needs no file and no AWS."""
    from gpuctl.workflows import eks_access

    name, where_it_is = name_and_region(request.cluster, request.region)
    return eks_access.place(
        eks_access.AccessRequest(
            name, request.pod, request.context, request.namespace, where_it_is, request.aws_profile
        )
    )
