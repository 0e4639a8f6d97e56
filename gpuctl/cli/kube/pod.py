"""kube pod: act on the selected pod, as the tmux keys do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.options import context, together

if TYPE_CHECKING:
    from gpuctl.kube.pod import PodRequest
    from gpuctl.kube.selected_pod import SelectedPod

namespace = click.option("--namespace", "-n", metavar="NAME", default="", help="Namespace instead of the current one.")
scope = together(context, namespace)
container = click.option("--container", "-c", metavar="NAME", default="", help="Which container.")
all_namespaces = click.option("--all-namespaces", "-A", is_flag=True, help="Choose from all namespaces.")
which_pod = together(
    click.argument("name", metavar="[POD]", default=""),
    container,
    click.option("--choose", "choose_again", is_flag=True, help="Choose a pod, even if one is selected."),
    all_namespaces,
    scope,
)


@click.group(cls=Group)
def pod() -> None:
    """Act on the selected pod, or select one."""


def _request(
    name: str, container: str, choose_again: bool, all_namespaces: bool, context: str, namespace: str
) -> PodRequest:
    from gpuctl.kube.pod import PodRequest, Scope

    return PodRequest(Scope(context, namespace, all_namespaces), name, container, choose_again)


def _act(action: Callable[[SelectedPod], int], request: PodRequest) -> None:
    """Run an action on the requested pod and exit with its code; return if the user cancels the choice."""
    from gpuctl.kube.pod import find

    target = find(request)
    if target is not None:
        sys.exit(action(target))


@pod.command()
@which_pod
def shell(name: str, container: str, choose_again: bool, all_namespaces: bool, context: str, namespace: str) -> None:
    """Open a shell in the container: bash if it has one, else sh."""
    from gpuctl.kube import pod as pods

    _act(pods.shell, _request(name, container, choose_again, all_namespaces, context, namespace))


@pod.command()
@which_pod
def logs(name: str, container: str, choose_again: bool, all_namespaces: bool, context: str, namespace: str) -> None:
    """Show the last lines of the pod's log and follow it, across restarts, until Ctrl-C."""
    from gpuctl.kube import pod as pods

    _act(pods.logs, _request(name, container, choose_again, all_namespaces, context, namespace))


@pod.command()
@which_pod
def describe(name: str, container: str, choose_again: bool, all_namespaces: bool, context: str, namespace: str) -> None:
    """Show `kubectl describe` of the pod."""
    from gpuctl.kube import pod as pods

    _act(pods.describe, _request(name, container, choose_again, all_namespaces, context, namespace))


@pod.command()
@which_pod
@click.argument("ports", metavar="[[LOCAL:]REMOTE]...", nargs=-1)
@click.option("--background", is_flag=True, help="Return when it runs; `gpuctl kube forward list` shows it.")
def forward(
    name: str,
    container: str,
    choose_again: bool,
    all_namespaces: bool,
    context: str,
    namespace: str,
    ports: tuple[str, ...],
    background: bool,
) -> None:
    """Forward the pod's ports; without PORTS, the ones it declares."""
    from gpuctl.cli.shared.forward_display import go, go_background
    from gpuctl.kube import pod as pods
    from gpuctl.kube.forward.request import of_pod

    def action(target: SelectedPod) -> int:
        remote_ports = ports or [str(port) for port in pods.ports(target)]
        request = of_pod(target.pod, remote_ports, target.context, target.namespace)
        return go_background(request, announce=True) if background else go(request)

    _act(action, _request(name, container, choose_again, all_namespaces, context, namespace))


@pod.command()
@all_namespaces
@scope
def choose(all_namespaces: bool, context: str, namespace: str) -> None:
    """Select a pod, then choose an action on it. The tmux keys act on the selected pod."""
    from gpuctl.kube import choose as menus
    from gpuctl.kube import pod as pods

    target = pods.choose_pod(pods.Scope(context, namespace, all_namespaces))
    action = menus.entry(pods.ACTIONS, target.pod) if target else None
    if target and action:
        sys.exit(pods.act(pods.ACTIONS[action], target))


@pod.command()
@click.argument("name")
@container
@scope
def select(name: str, container: str, context: str, namespace: str) -> None:
    """Select a pod by name, for a k9s plugin or a script."""
    from gpuctl.kube import pod as pods

    target = pods.select(pods.named(name, pods.Scope(context, namespace), container))
    click.echo(f"{target.namespace}/{target.pod} in {target.context or 'no context'} is selected")


@pod.command()
@click.option("--all-namespaces", "-A", is_flag=True, help="Pods of all namespaces.")
@scope
def problems(all_namespaces: bool, context: str, namespace: str) -> None:
    """List pods that are neither ready nor finished, such as those in CrashLoopBackOff."""
    from gpuctl.cli.shared import output
    from gpuctl.kube import pod as pods

    listed = pods.problems(pods.Scope(context, namespace, all_namespaces))
    rows = [(p.namespace, p.name, p.status, p.restarts, p.node or "-", p.since) for p in listed]
    output.table(("NAMESPACE", "POD", "STATUS", "RESTARTS", "NODE", "SINCE"), rows)
    if not rows:
        click.echo("all pods are ready or finished")
