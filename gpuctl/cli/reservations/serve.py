"""`gpuctl reservations serve`: the service, its nodes and its unit."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.reservations.reserve import socket_option
from gpuctl.cli.shared import options
from gpuctl.cli.shared.options import Finite
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.reservations.database import Stored
    from gpuctl.reservations.rules.model import Limits
    from gpuctl.reservations.serve import Fleet
    from gpuctl.workflows.reservations_pods import PodsRequest


_FILES_IN_ONE_WORD = ("--inventory=", "--kubeconfig=", "--github-token=", "-i")


@dataclass(frozen=True)
class PodOptions:
    """Options of a cluster; `cpu` and `memory` are those of one GPU's part, "" for its share of the node."""

    context: str = ""
    kubeconfig: Path | None = None
    namespace: str = ""
    image: str = ""
    node_label: Sequence[str] = ()
    cpu: str = ""
    memory: str = ""
    disk_size: str = "100Gi"
    storage_class: str = ""


@dataclass(frozen=True)
class ServeCommand:
    """Inputs of `reservations serve`; hours where there is no unit. `gpu_type`: None to ask the driver."""

    pods: PodOptions
    inventory: str | None
    limit: str
    gpu_type: str | None
    admins: Sequence[str]
    longest: float
    gpus_per_person: int | None
    lost_after: float
    idle_after: float | None
    state: Path
    table: str
    github_token: Path | None
    web: str
    print_unit: bool
    socket: Path


pod_options = options.together(
    options.other_context("Share the GPUs of this cluster's nodes; sessions are pods."),
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="File with the context.  [default: as kubectl]",
    ),
    click.option(
        "--namespace", "-n", metavar="NAME", default="", help="Namespace of the pods.  [default: the context's]"
    ),
    click.option("--image", metavar="IMAGE", default="", help="Image of sessions in pods, with openssh-server."),
    click.option("--node-label", metavar="KEY=VALUE", multiple=True, help="Share only nodes with this label."),
    click.option(
        "--cpu", metavar="N", default="", help="Processors of a pod for each GPU.  [default: the GPU's share]"
    ),
    click.option(
        "--memory", metavar="SIZE", default="", help="Memory of a pod for each GPU.  [default: the GPU's share]"
    ),
    click.option("--disk-size", metavar="SIZE", default="100Gi", show_default=True, help="Size of a new disk."),
    click.option("--storage-class", metavar="NAME", default="", help="Storage class of new disks."),
)


@click.command(name="serve")
@options.as_request(
    ServeCommand,
    pod_options,
    click.option(
        "--inventory",
        "-i",
        metavar="NAME|PATH",
        help="Share the GPUs of these hosts over ssh.  [default: this host]",
    ),
    options.limit,
    click.option("--type", "gpu_type", help="GPU type of the hosts; default: what the driver calls it."),
    click.option("--admin", "admins", multiple=True, help="Account that may change everybody's reservations."),
    click.option(
        "--longest", type=Finite(min=0.25), default=24.0, show_default=True, help="Longest request, in hours."
    ),
    click.option("--gpus-per-person", type=click.IntRange(min=1), help="Most GPUs of a person at a time."),
    click.option(
        "--lost-after",
        type=Finite(min=0.05),
        default=1.0,
        show_default=True,
        help="Hours without an answer until a server counts as lost.",
    ),
    click.option(
        "--idle-after",
        type=Finite(min=1),
        help="Hours without GPU work and ssh connections, after which a session is announced to end.  [default: never]",
    ),
    click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False),
        default="/var/lib/gpuctl/reservations",
        show_default=True,
        help="Folder of the database.",
    ),
    click.option(
        "--table",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="Table of DynamoDB with the reservations, which `reservations deploy` describes.  [default: in --state]",
    ),
    click.option(
        "--github-token",
        metavar="FILE",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="File with a token of GitHub, for more than 60 readings of users in an hour; it needs no rights.",
    ),
    click.option(
        "--web",
        metavar="[ADDRESS:]PORT",
        default="",
        callback=options.not_empty,
        help="Serve a read-only page for browsers; with a port alone, to this machine only.",
    ),
    click.option("--print-unit", is_flag=True, help="Print a systemd unit for these options, and do nothing else."),
    socket_option,
)
def serve_(request: ServeCommand) -> None:
    """Share the GPUs of this host, with --inventory those of several hosts, with --context those of a cluster.

    On hosts it gives and takes access to /dev/nvidia*: it runs as root, or reaches them with a login that becomes root.
    In a cluster each session is a pod, which people reach by ssh through this service; they need no access to it.
    """
    from gpuctl.hosts.plan import find_inventory
    from gpuctl.reservations import serve

    _check(request)
    at = serve.page_address(request.web) if request.web else None
    if request.print_unit:
        path = None if request.inventory is None else find_inventory(request.inventory).absolute()
        click.echo(_unit(serve.UNIT, path, request.pods, request.github_token), nl=False)
        return
    token = _token(request.github_token)
    ask, limits = _nodes(request), _limits(request)
    serve_options = serve.ServeOptions(
        request.socket,
        request.state,
        request.gpu_type,
        tuple(request.admins),
        limits,
        web=at,
        github_token=token,
        table=request.table,
    )
    with serve.running(serve_options, ask) as step:
        click.echo(f"reservations are served at {request.socket}", err=True)
        if at is not None:
            click.echo(serve.page_note(*at), err=True)
        while True:
            time.sleep(step())


def _limits(request: ServeCommand) -> Limits:
    from gpuctl.reservations.rules.model import Limits
    from gpuctl.workflows import reservations_pods

    limits = Limits(longest_s=round(request.longest * 3600), gpus_per_person=request.gpus_per_person)
    limits = replace(limits, node_lost_s=round(request.lost_after * 3600), longest_extended_s=2 * limits.longest_s)
    if request.pods.context:
        limits = replace(limits, prepare_limit_s=reservations_pods.START_S)
    if request.idle_after is not None:
        limits = replace(limits, idle_ends=True, idle_window_s=round(request.idle_after * 3600))
    return limits


def _nodes(request: ServeCommand) -> Callable[[Stored], Fleet] | None:
    """A function that reads the nodes; None for the GPUs of this host."""
    from gpuctl.workflows import reservations_cluster, reservations_nodes

    if request.pods.context:
        of_cluster = _pods_request(request.pods)
        cluster = reservations_cluster.connect(of_cluster)
        return lambda stored: reservations_cluster.fleet(cluster, of_cluster, request.gpu_type, stored, _notify)
    if request.inventory is not None:
        hosts = reservations_nodes.chosen(reservations_nodes.FleetRequest(request.inventory, request.limit))
        return lambda stored: reservations_nodes.fleet(hosts, request.gpu_type, stored, _notify)
    return None


def _token(path: Path | None) -> str:
    """A token of GitHub; "" without one. `InvalidInput` for a file that others read, or that has none."""
    if path is None:
        return ""
    doing = f"read the token of GitHub in {path}"
    if path.stat().st_mode & 0o077:
        raise InvalidInput(doing, "other accounts can read it", f"chmod 600 {shlex.quote(str(path))}")
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(doing, str(error), "write the token into it, and nothing else") from error
    if not token.isascii() or len(token.split()) != 1:
        raise InvalidInput(doing, "it is not one word", "write the token into it, and nothing else")
    return token


def _notify(text: str) -> None:
    click.echo(text, err=True)


def _check(command: ServeCommand) -> None:
    """`InvalidInput` for options of nodes that were not named, and for two kinds of nodes at once."""
    from gpuctl.reservations import serve

    request = command.pods
    if command.limit and command.inventory is None:
        raise InvalidInput(serve.DOING, "--limit chooses hosts of an inventory", "add --inventory NAME")
    if command.table and not request.context:
        hint = "add --context NAME: who sends messages has no account of hosts"
        raise InvalidInput(serve.DOING, "--table is for the nodes of a cluster", hint)
    if not request.context:
        used = [name for name, value in vars(request).items() if value and name not in ("context", "disk_size")]
        if used:
            wrong = f"--{used[0].replace('_', '-')} is for the nodes of a cluster"
            raise InvalidInput(serve.DOING, wrong, "add --context NAME")
        return
    if command.inventory is not None:
        hint = "run two services, each with its own --socket and --state"
        raise InvalidInput(serve.DOING, "--inventory and --context name two kinds of nodes", hint)
    if not request.image:
        raise InvalidInput(
            serve.DOING, "no image is named for the pods", "add --image with one that has openssh-server"
        )


def _pods_request(request: PodOptions) -> PodsRequest:
    from gpuctl.reservations import serve
    from gpuctl.workflows.reservations_pod_objects import Sizes
    from gpuctl.workflows.reservations_pods import PodsRequest

    labels = {}
    for text in request.node_label:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidInput(serve.DOING, f"--node-label {text!r} is not KEY=VALUE", "such as pool=reservations")
        labels[key] = value
    sizes = Sizes(request.cpu, request.memory, request.disk_size, request.storage_class)
    files = [request.kubeconfig.absolute()] if request.kubeconfig else []
    return PodsRequest(request.context, request.namespace, request.image, labels, sizes, files)


def _unit(text: str, inventory: Path | None, request: PodOptions, token: Path | None) -> str:
    """The unit with the options of this call; files by absolute paths, since a unit starts in another folder.

    A unit has no KUBECONFIG: the one of now is named.
    """
    import sys

    from gpuctl.workflows import reservations_cluster

    given = sys.argv[1:]
    for command in ("reservations", "serve"):
        given.remove(command)  # the first: a later one is a value
    options, words = list[str](), iter(given)
    for word in words:
        if word in ("--inventory", "-i", "--kubeconfig", "--github-token"):
            next(words)
        elif word != "--print-unit" and not word.startswith(_FILES_IN_ONE_WORD):
            options.append(word)
    options += [] if inventory is None else ["--inventory", str(inventory)]
    if request.context:
        options += ["--kubeconfig", str(request.kubeconfig or reservations_cluster.kubeconfig())]
    options += [] if token is None else ["--github-token", str(token.absolute())]
    program = Path(sys.argv[0]).absolute()
    return text.format(program=program, options="".join(f" {shlex.quote(word)}" for word in options))
