"""kube: shells, port forwards, notifications and explanations on top of kubectl."""

from __future__ import annotations

import sys

import click

from gpuctl.cli.kube import shell
from gpuctl.cli.kube.pod import pod, scope
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.core.exit_codes import INTERRUPTED


@click.group("kube", cls=Group)
def group() -> None:
    """Work with Kubernetes: shells, port forwards, notifications and explanations on top of kubectl."""


group.add_command(pod)
for command in shell.commands:
    group.add_command(command)


@group.command()
@click.argument("pod_name", metavar="[POD]", default="")
@click.argument("ports", metavar="[[LOCAL:]REMOTE]...", nargs=-1)
@click.option("--selector", "-l", metavar="LABELS", default="", help="Forward to every pod with these labels.")
@click.option(
    "--from",
    "first",
    type=click.IntRange(1, 65535),
    help="With -l: local port of the first pod; the next pods get the next free ports.",
)
@click.option(
    "--to", "remote", type=click.IntRange(1, 65535), multiple=True, help="With -l: port of each pod; repeatable."
)
@click.option("--save", metavar="NAME", default="", help="Also save these forwards under a name.")
@click.option("--set", "saved_name", metavar="NAME", default="", help="Use the forwards saved under a name.")
@click.option("--wizard", is_flag=True, help="Choose pods and ports interactively.")
@options.probe_every
@scope
def forward(
    pod_name: str,
    ports: tuple[str, ...],
    selector: str,
    first: int | None,
    remote: tuple[int, ...],
    save: str,
    saved_name: str,
    wizard: bool,
    probe_every: float,
    context: str,
    namespace: str,
) -> None:
    """Forward local ports to pods until Ctrl-C.

    Name one POD and its ports (trainer-0 8081:8080), or select several pods by label (-l app=web --from 8081 --to
    8080). A broken forward is restarted; if a pod is replaced, the forward moves to its replacement.
    """
    from gpuctl.cli.shared.forward_display import go
    from gpuctl.kube.forward import request as requests
    from gpuctl.kube.forward import saved
    from gpuctl.kube.pod import Scope

    kube_scope = Scope(context, namespace)
    request = requests.request(
        requests.ForwardArguments(pod_name, ports, selector, first, remote, saved_name, wizard, kube_scope)
    )
    if request is None:
        return
    if save:
        click.echo(f"saved as {saved.save(save, request)}", err=True)
    sys.exit(go(request, probe_every))


@group.command()
@click.argument("pod_name", metavar="POD")
@click.option("--lines", type=click.IntRange(1), default=100, show_default=True, help="Number of lines of each log.")
@click.option(
    "--ask", "send", is_flag=True, help="Also send it to the command `ask` of the settings (default: claude -p)."
)
@click.option("--yes", "-y", is_flag=True, help="Send it without confirmation.")
@scope
def explain(pod_name: str, lines: int, send: bool, yes: bool, context: str, namespace: str) -> None:
    """Print all that the cluster records of POD (describe, events, logs), with secrets removed."""
    from gpuctl.core import settings
    from gpuctl.kube import explain as explanations
    from gpuctl.kube.pod import Scope, kubectl_for

    explanation = explanations.gather(kubectl_for(Scope(context, namespace)), pod_name, lines)
    click.echo(explanation.text)
    click.echo(f"{output.plural(explanation.secrets, 'secret')} removed", err=True)
    if explanation.note:
        click.echo(f"note: {explanation.note}", err=True)
    if not send:
        return
    command = settings.load().ask
    if not yes:
        click.confirm(f"Send this to `{' '.join(command)}`?", abort=True, err=True)
    sys.exit(explanations.ask(command, explanation.text))


@group.command()
@click.option("--all-namespaces", "-A", is_flag=True, help="Watch all namespaces.")
@click.option(
    "--restarts", type=click.IntRange(1), default=None, help="Also report containers with this many restarts."
)
@click.option("--pending", type=options.Finite(1), default=None, help="Also report pods pending for this many seconds.")
@click.option(
    "--not-ready",
    type=options.Finite(1),
    default=None,
    help="Also report running pods not ready for this many seconds.",
)
@click.option("--nodes", is_flag=True, help="Also report nodes that become ready or not ready.")
@scope
def notify(
    all_namespaces: bool,
    restarts: int | None,
    pending: float | None,
    not_ready: float | None,
    nodes: bool,
    context: str,
    namespace: str,
) -> None:
    """Report crashed pods and finished rollouts until Ctrl-C, as lines and as tmux messages."""
    from gpuctl.kube import notify as notifications
    from gpuctl.kube.notices import Thresholds
    from gpuctl.kube.pod import Scope, kubectl_for

    def report(text: str) -> None:
        notifications.to_tmux(text)
        click.echo(text)

    thresholds = Thresholds(restarts or 0, pending or 0.0, not_ready or 0.0)
    notifications.run(kubectl_for(Scope(context, namespace)), all_namespaces, nodes, thresholds, report)
    sys.exit(INTERRUPTED)  # the only way it ends


@group.command()
@click.argument("name", metavar="[NAMESPACE]", default="")
@click.option(
    "--every", type=options.Finite(0.5), default=2.0, show_default=True, help="Seconds between two refreshes."
)
@options.context
def watch(name: str, every: float, context: str) -> None:
    """Show the pods, workloads and services of a namespace until Ctrl-C, refreshed at an interval."""
    from gpuctl.kube.pod import Scope, kubectl_for
    from gpuctl.kube.resources import watch as draw

    draw(kubectl_for(Scope(context, name)), every)


@group.command()
def palette() -> None:
    """Choose a common command from a menu and run it.

    Helm releases and Terraform workspaces are offered if those programs are installed.
    """
    from gpuctl.kube.palette import run

    sys.exit(run())
