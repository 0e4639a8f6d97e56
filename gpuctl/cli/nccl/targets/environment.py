"""nccl in an environment of a cluster file: its options, and the runner they select."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.nccl import log_files
from gpuctl.cli.nccl.targets import pods as nccl_kube
from gpuctl.cli.nccl.targets.pods import FOR_SSH, Made, given_options
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import section
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.nccl.runners.kube.exec_transport import PodTransport
    from gpuctl.nccl.runners.mpirun import MpiRunner
    from gpuctl.workflows.nccl_on_cluster import Place

# Of pods that are made for the test; --context, --rack-label and --ssh-args are of use in those that are there, too.
FOR_OWN_PODS = tuple(name for name in ("image", *nccl_kube.FOR_PODS) if name not in ("context", "rack_label"))
HOSTS = tuple(name for name in FOR_SSH if name != "ssh_args")

on_cluster = section("On the cluster of a cluster file, in its environment's pods where it is deployed")
cluster_options = options.together(
    on_cluster(
        "--cluster",
        metavar="NAME|FILE",
        default="",
        callback=options.not_empty,
        help="Which, as the `gpuctl cluster` commands have it.",
    ),
    on_cluster(
        "--environment",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="Which environment.  [default: as the file]",
    ),
)


def chosen(cluster: str, environment: str, **params: Any) -> bool:
    """Return True if --cluster selects this target; raises `InvalidInput` if options of several targets are mixed."""
    if environment and not cluster:
        raise InvalidInput("run NCCL tests", "--environment is for a cluster file", "give --cluster, too")
    others = given_options(HOSTS, params) if cluster else ""
    if others:
        hint = "leave one of them out; --nodes names pods or nodes of the cluster"
        raise InvalidInput("run NCCL tests on a cluster", f"{others} is for hosts that ssh reaches", hint)
    return bool(cluster)


def gpus(cluster: str) -> int:
    """GPUs per node according to the cluster file."""
    from gpuctl.workflows import nccl_on_cluster

    return nccl_on_cluster.file_of(cluster).gpus.per_node


def place(cluster: str, environment: str, context: str, **_: Any) -> Place:
    """Locate the environment on its cluster."""
    from gpuctl.workflows import nccl_on_cluster

    return nccl_on_cluster.place(cluster, environment, context)


def in_its_pods(
    at: Place,
    nodes: str,
    rack_label: str,
    ssh_args: str,
    folders: Sequence[str],
    texts: Path | None,
    **params: Any,
) -> tuple[MpiRunner, PodTransport, dict[str, str]]:
    """Return the runner, the pod transport and the known racks."""
    from gpuctl.nccl.runners.kube.exec_transport import pod_options
    from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
    from gpuctl.workflows import nccl_on_cluster

    if others := given_options(FOR_OWN_PODS, params):
        wrong = f"{others} is for pods of a test's own, and {at.env.name} is deployed: its pods hold the GPUs"
        raise InvalidInput("run NCCL tests on a cluster", wrong, "leave it out, or `gpuctl cluster destroy` first")
    pods = nccl_on_cluster.chosen(at, nodes)
    click.echo(f"in {output.plural(len(pods), 'pod')} of {at.env.name}, which is deployed", err=True)
    for name, why in () if nodes else at.pods[1].items():
        click.echo(f"left out: {name}: {why}", err=True)
    carrier = nccl_on_cluster.carrier(at, pods)
    racks = nccl_on_cluster.racks(at, pods, rack_label)
    if racks is None:
        click.echo("racks are not known: you may not list nodes", err=True)
    runner = MpiRunner(
        carrier, pod_options(MpirunOptions(tuple(folders), ssh_args=ssh_args, texts=log_files.made(texts)))
    )
    return runner, carrier, racks or {}


def not_there(at: Place) -> InvalidInput:
    """Error for a named environment that does not exist; no other GPUs are used in its place."""
    wrong = f"no environment {at.env.name} is in {at.env.namespace}"
    hint = "without --environment the test gets pods of its own where the file's environment is not deployed"
    return InvalidInput(f"run NCCL tests in the pods of {at.env.name}", wrong, hint)


def in_own_pods(at: Place, namespace: str, context: str, ssh_args: str, **params: Any) -> Made:
    """Run in pods of the test's own, as the cluster file describes them; command-line options win."""
    from gpuctl.edges.kube import cluster as kube
    from gpuctl.workflows import nccl_on_cluster

    if ssh_args:
        raise InvalidInput("run NCCL tests on a cluster", "--ssh-args is for an environment that is deployed")
    settings = nccl_kube.settings_of(nccl_on_cluster.settings(at), **params)
    cluster = kube.connect(context, namespace) if namespace else at.cluster
    click.echo(f"in pods of its own, for {at.env.name} is not deployed in {at.env.namespace}", err=True)
    made = nccl_kube.in_own_pods(cluster, settings, among=nccl_on_cluster.among(at), **params)
    return made._replace(where=at.where)
