"""kube pod: act on the selected pod, as the tmux keys do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.options import context, together

if TYPE_CHECKING:
    from gpuctl.kube.selected_pod import Chosen

namespace = click.option("--namespace", "-n", metavar="NAME", default="", help="Namespace instead of the current one.")
where = together(context, namespace)
container = click.option("--container", "-c", metavar="NAME", default="", help="Which container.")
everywhere = click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="Choose from all namespaces.")
which = together(
    click.argument("name", metavar="[POD]", default=""),
    container,
    click.option("--choose", "anew", is_flag=True, help="Choose a pod, even if one is selected."),
    everywhere,
    where,
)


@click.group(cls=Group)
def pod() -> None:
    """Act on the selected pod, or select one."""


def _act(
    action: Callable[[Chosen], int],
    name: str,
    container: str,
    anew: bool,
    everywhere: bool,
    context: str,
    namespace: str,
) -> None:
    """Run an action on the named, the selected or a newly chosen pod; do nothing if the user cancels."""
    from gpuctl.kube import pod as pods

    place = pods.Where(context, namespace, everywhere)
    if name:
        target: Chosen | None = pods.named(name, place, container)
    else:
        target = pods.ask(place) if anew else pods.last(place)
    if target is not None:
        sys.exit(action(target))


def _command(name: str, does: str) -> None:
    """Define the command for the function of this name in gpuctl.kube.pod."""

    @pod.command(name, help=does)
    @which
    def act(**options: Any) -> None:
        from gpuctl.kube import pod as pods

        _act(getattr(pods, name), **options)


_command("shell", "Open a shell in the container: bash if it has one, else sh.")
_command("logs", "Show the last lines of its log and follow it.")
_command("describe", "Show kubectl describe of it.")


@pod.command()
@which
@click.argument("ports", metavar="[[LOCAL:]REMOTE]...", nargs=-1)
def forward(ports: tuple[str, ...], **options: Any) -> None:
    """Forward the pod's ports; without PORTS, the ones it declares."""
    from gpuctl.cli.shared.forward_display import go
    from gpuctl.kube import pod as pods
    from gpuctl.kube.forward.request import of_pod

    def action(target: Chosen) -> int:
        remote_ports = ports or [str(port) for port in pods.ports(target)]
        return go(of_pod(target.pod, remote_ports, target.context, target.namespace))

    _act(action, **options)


@pod.command()
@everywhere
@where
def choose(everywhere: bool, context: str, namespace: str) -> None:
    """Select a pod, then what to do with it. The tmux keys act on the selected pod."""
    from gpuctl.kube import choose as choosing
    from gpuctl.kube import pod as pods

    target = pods.ask(pods.Where(context, namespace, everywhere))
    action = choosing.entry(pods.ACTIONS, target.pod) if target else None
    if target and action:
        sys.exit(pods.ACTIONS[action](target))


@pod.command()
@click.argument("name")
@container
@where
def select(name: str, container: str, context: str, namespace: str) -> None:
    """Select a pod by name, for a k9s plugin or a script."""
    from gpuctl.kube import pod as pods

    target = pods.select(pods.named(name, pods.Where(context, namespace), container))
    click.echo(f"{target.namespace}/{target.pod} in {target.context or 'no context'} is selected")
