"""kube: shells, port forwards, notifications and explanations on top of kubectl."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from gpuctl.cli.kube import shell
from gpuctl.cli.kube.edit_in import edit_in
from gpuctl.cli.kube.forward import forward
from gpuctl.cli.kube.logs_ai import logs_ai
from gpuctl.cli.kube.pod import pod, scope
from gpuctl.cli.kube.pods import pods
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.core.exit_codes import INTERRUPTED


@click.group("kube", cls=Group)
def group() -> None:
    """Work with Kubernetes: shells, port forwards, notifications and explanations on top of kubectl."""


group.add_command(pod)
group.add_command(pods)
group.add_command(forward)
group.add_command(logs_ai)
group.add_command(edit_in)
for command in shell.commands:
    group.add_command(command)


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
    from gpuctl.kube import ask
    from gpuctl.kube import explain as explanations
    from gpuctl.kube.pod import Scope, kubectl_for

    command = ask.program("", settings.load().ask) if send else ()
    explanation = explanations.gather(kubectl_for(Scope(context, namespace)), pod_name, lines)
    click.echo(explanation.text)
    click.echo(f"{output.plural(explanation.secrets, 'secret')} removed", err=True)
    if explanation.note:
        click.echo(f"note: {explanation.note}", err=True)
    if not send:
        return
    if not yes:
        click.confirm(f"Send this to `{' '.join(command)}`?", abort=True, err=True)
    ask.ask(command, explanations.QUESTION + explanation.text)


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


def every_seconds(default: float) -> Callable[[options.Command], options.Command]:
    """Return the option --every."""
    text = "Seconds between two refreshes."
    return click.option("--every", type=options.Finite(0.5), default=default, show_default=True, help=text)


@group.command()
@click.argument("name", metavar="[NAMESPACE]", default="")
@every_seconds(5.0)
@options.context
def top(name: str, every: float, context: str) -> None:
    """Show the CPU and memory of a namespace's pods over time until Ctrl-C; needs the metrics server.

    Each pod has its current and its highest usage, and a graph between 0 and the highest.
    """
    from gpuctl.kube.pod import Scope, kubectl_for
    from gpuctl.kube.resources import watch as draw
    from gpuctl.kube.usage import Usage

    draw(kubectl_for(Scope(context, name)), every, Usage().page)


@group.command()
@click.argument("name", metavar="[NAMESPACE]", default="")
@every_seconds(2.0)
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
