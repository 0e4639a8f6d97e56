"""nccl on Kubernetes: options, the runner they select, and cleanup after a killed run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuctl.cli.nccl import log_files
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import section
from gpuctl.core.errors import GpuctlError, InvalidInput

if TYPE_CHECKING:
    from gpuctl.edges.kube.cluster import Cluster
    from gpuctl.nccl.runners.kube.model import Settings
    from gpuctl.nccl.runners.kube.nodes import NodeInventory
    from gpuctl.nccl.runners.kube.runner import KubeRunner

FOR_SSH = ("inventory", "limit", "via", "by_name", "ssh_args", "as_root")
FOR_PODS = (
    "context",
    "namespace",
    "fabric",
    "user",
    "networks",
    "service_account",
    "pull_secret",
    "rack_label",
    "mpijob",
)

MAY_BE_NO = ("user", "mpijob")


class Made(NamedTuple):
    """The runner, the nodes it is to use, the cluster's name for the history, and the racks that are known."""

    runner: KubeRunner
    nodes: list[str]
    where: str
    racks: dict[str, str]


in_pods = section("In pods of a Kubernetes cluster (--image)")
context = in_pods("--context", metavar="NAME", default="", help="The kubeconfig's context.  [default: its current]")
namespace = in_pods("--namespace", metavar="NAME", default="", help="Where the pods run.  [default: the context's]")
kube_options = options.together(
    in_pods(
        "--image",
        metavar="IMAGE",
        default="",
        callback=options.not_empty,
        help="Run in pods of this image, which has nccl-tests.",
    ),
    context,
    namespace,
    in_pods("--fabric", metavar="NAME=N", multiple=True, help="A resource of each pod: vpc.amazonaws.com/efa=32."),
    in_pods("--networks", metavar="A,B,…", default="", help="Secondary networks of each pod."),
    in_pods("--user", type=click.IntRange(0), help="The user number in the pods; 0 is root.  [default: 1000]"),
    in_pods("--service-account", metavar="NAME", default="", help="The pods' service account."),
    in_pods("--pull-secret", metavar="NAME", default="", help="The Secret their image is pulled with."),
    in_pods(
        "--rack-label", metavar="LABEL", default="", help="The label naming a node's rack.  [default: the usual ones]"
    ),
    in_pods(
        "--mpijob/--no-mpijob",
        default=None,
        help="Several nodes as an MPIJob of the MPI operator.  [default: where it is there, and you may]",
    ),
)


def given_options(names: Iterable[str], params: Mapping[str, Any]) -> str:
    """Names of the given options as typed; for some of them 0 and --no-… are choices, too."""
    chose = [name for name in names if (params.get(name) is not None if name in MAY_BE_NO else params.get(name))]
    return ", ".join(f"--{name.replace('_', '-')}" for name in chose)


def chosen(image: str, **params: Any) -> bool:
    """Return True if the run uses pods; raises `InvalidInput` if options of several targets are mixed."""
    others = given_options(FOR_SSH if image else FOR_PODS, params)
    if others and image:
        hint = "leave one of them out; --nodes names nodes of the cluster"
        raise InvalidInput("run NCCL tests in pods", f"{others} is for hosts that ssh reaches", hint)
    if others:
        raise InvalidInput("run NCCL tests", f"{others} is for pods", "give --image or --cluster, too")
    return bool(image)


def runner(context: str, namespace: str, **params: Any) -> Made:
    """Build the runner that the options select."""
    from gpuctl.edges.kube import cluster as kube
    from gpuctl.nccl.runners.kube.model import Settings

    return in_own_pods(kube.connect(context, namespace), settings_of(Settings(""), **params), **params)


def settings_of(
    base: Settings, fabric: Sequence[str] = (), folders: Sequence[str] = (), user: int | None = None, **params: Any
) -> Settings:
    """Override `base` with the options given."""
    names = ("image", "networks", "service_account", "pull_secret")
    values: dict[str, Any] = {name: params[name] for name in names if params.get(name)}
    values |= {"fabric": dict(_resource(word) for word in fabric)} if fabric else {}
    values |= {"folders": tuple(folders)} if folders else {}
    values |= {} if user is None else {"user": user}
    return replace(base, **values)


def in_own_pods(
    cluster: Cluster,
    settings: Settings,
    /,
    nodes: str,
    rack_label: str = "",
    mpijob: bool | None = None,
    gpus: int = 1,
    texts: Path | None = None,
    among: Collection[str] | None = None,
    **_: Any,
) -> Made:
    """Run in pods created for each launch; nodes with fewer than `gpus` free GPUs are left out.

    `among`: the nodes to choose from if none is named; None for all.
    """
    from gpuctl.nccl.runners.kube import nodes as there
    from gpuctl.nccl.runners.kube.runner import KubeRunner

    tolerated = (*settings.fabric, *settings.tolerations)
    inventory = there.find(cluster, settings.gpu, gpus, rack_label, tolerated=tolerated)
    if among is not None and not nodes:
        inventory = there.only(inventory, among)
    names = _chosen_nodes(nodes, inventory, cluster.server)
    settings = replace(settings, mpijob=len(names) > 1 and _by_operator(cluster, mpijob))
    return Made(KubeRunner(cluster, settings, log_files.made(texts)), names, cluster.server, dict(inventory.racks))


def _by_operator(cluster: Cluster, requested: bool | None) -> bool:
    from gpuctl.nccl.runners.kube import mpijob

    by_operator, reason = mpijob.chosen(cluster, requested)
    if reason:
        click.echo(f"several nodes run {reason}", err=True)
    return by_operator


def _chosen_nodes(nodes: str, inventory: NodeInventory, server: str) -> list[str]:
    """Nodes listed in --nodes, in that order, or all that can be tested; nodes left out are reported."""
    if inventory.unsure:
        click.echo(f"gpuctl: {inventory.unsure}", err=True)
    requested = [word.strip() for word in nodes.split(",") if word.strip()]
    if len(set(requested)) < len(requested):
        raise InvalidInput(f"run on nodes of {server}", "--nodes names a node twice", "name each once")
    refused = {name: inventory.left_out.get(name, "no GPU node of this name is there") for name in requested}
    if wrong := [f"{name}: {why}" for name, why in refused.items() if name not in inventory.free]:
        hint = f"those that can be tested: {output.names(list(inventory.free), 32) or 'none'}"
        raise InvalidInput(f"run on nodes of {server}", "; ".join(wrong), hint)
    if not requested:
        for name, why in inventory.left_out.items():
            click.echo(f"left out: {name}: {why}", err=True)
    if not inventory.free:
        why = "; ".join(f"{name}: {why}" for name, why in list(inventory.left_out.items())[:8])
        raise GpuctlError("find nodes to test", why, "wait until their jobs end, or ask for fewer GPUs with --gpus")
    return requested or list(inventory.free)


def _resource(word: str) -> tuple[str, str]:
    name, _, count = word.partition("=")
    if not name or not count:
        raise InvalidInput("read --fabric", f"{word!r} is not of the form NAME=N", "such as vpc.amazonaws.com/efa=32")
    return name, count


@click.command()
@context
@namespace
def clean(context: str, namespace: str) -> None:
    """Remove the objects of your killed runs from a Kubernetes cluster, once their time is over."""
    from gpuctl.core.run_history import current_user
    from gpuctl.edges.kube import cluster as kube
    from gpuctl.nccl.runners.kube import leftovers

    gone = leftovers.remove(kube.connect(context, namespace), current_user())
    click.echo(f"removed {output.plural(len(gone), 'run')}" + (f": {', '.join(gone)}" if gone else ""))
