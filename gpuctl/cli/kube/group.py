"""kube: shells, port forwards, watches and explanations on top of kubectl."""

from __future__ import annotations

import sys

import click

from gpuctl.cli.kube import shell
from gpuctl.cli.kube.pod import pod, where
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group


@click.group("kube", cls=Group)
def group() -> None:
    """Kubernetes from the workstation: shells, port forwards, notifications, explanations."""


group.add_command(pod)
for command in shell.commands:
    group.add_command(command)


@group.command()
@click.argument("pod_name", metavar="[POD]", default="")
@click.argument("ports", metavar="[[LOCAL:]REMOTE]...", nargs=-1)
@click.option("--selector", "-l", metavar="LABELS", default="", help="All pods with these labels.")
@click.option("--from", "first", type=click.IntRange(1, 65535), help="First local port for -l.")
@click.option("--to", "remote", type=click.IntRange(1, 65535), multiple=True, help="Port of each pod; repeatable.")
@click.option("--save", metavar="NAME", default="", help="Also save these forwards under a name.")
@click.option("--set", "kept", metavar="NAME", default="", help="Use the forwards saved under a name.")
@click.option("--wizard", is_flag=True, help="Choose pods and ports interactively.")
@options.probe_every
@where
def forward(
    pod_name: str,
    ports: tuple[str, ...],
    selector: str,
    first: int | None,
    remote: tuple[int, ...],
    save: str,
    kept: str,
    wizard: bool,
    probe_every: float,
    context: str,
    namespace: str,
) -> None:
    """Forward local ports to pods until Ctrl-C.

    Select either all pods with the label -l, on consecutive local ports (--from 8081 --to 8080), or one POD with its
    ports. A broken forward is restarted; if a pod is replaced, the forward moves to its replacement.
    """
    from gpuctl.cli.shared.forward_display import go
    from gpuctl.kube.forward import request as ask
    from gpuctl.kube.forward import saved
    from gpuctl.kube.pod import Where

    place = Where(context, namespace)
    request = ask.request(ask.Typed(pod_name, ports, selector, first, remote, kept, wizard, place))
    if request is None:
        return
    if save:
        click.echo(f"kept as {saved.save(save, request)}", err=True)
    sys.exit(go(request, probe_every))


@group.command()
@click.argument("pod_name", metavar="POD")
@click.option("--lines", type=click.IntRange(1), default=100, show_default=True, help="Number of lines of each log.")
@click.option("--ask", "send", is_flag=True, help="Pass the result to the command in the settings (claude -p).")
@click.option("--yes", "-y", is_flag=True, help="Send it without confirmation.")
@where
def explain(pod_name: str, lines: int, send: bool, yes: bool, context: str, namespace: str) -> None:
    """Collect describe, events, logs and previous logs of POD, with secrets removed."""
    from gpuctl.core import settings
    from gpuctl.kube import explain as explaining
    from gpuctl.kube.pod import Where, kubectl_for

    explanation = explaining.gather(kubectl_for(Where(context, namespace)), pod_name, lines)
    click.echo(explanation.text)
    click.echo(f"{output.plural(explanation.secrets, 'secret')} removed", err=True)
    if explanation.note:
        click.echo(f"note: {explanation.note}", err=True)
    if not send:
        return
    command = settings.load().ask
    if not yes:
        click.confirm(f"Send this to `{' '.join(command)}`?", abort=True, err=True)
    sys.exit(explaining.ask(command, explanation.text))


@group.command()
@click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("--restarts", type=click.IntRange(1), default=None, help="Report containers with this many restarts.")
@click.option("--pending", type=options.Finite(1), default=None, help="Report pods pending for this many seconds.")
@click.option(
    "--not-ready", type=options.Finite(1), default=None, help="Report running pods not ready for this many seconds."
)
@click.option("--nodes", is_flag=True, help="Report nodes that become ready or not ready.")
@where
def notify(
    everywhere: bool,
    restarts: int | None,
    pending: float | None,
    not_ready: float | None,
    nodes: bool,
    context: str,
    namespace: str,
) -> None:
    """Report crashed pods, finished rollouts and exceeded thresholds, as tmux messages or plain lines."""
    from gpuctl.kube import notify as notices
    from gpuctl.kube.notices import Thresholds
    from gpuctl.kube.pod import Where, kubectl_for

    def tell(text: str) -> None:
        notices.to_tmux(text)
        click.echo(text)

    at = Thresholds(restarts or 0, pending or 0.0, not_ready or 0.0)
    notices.run(kubectl_for(Where(context, namespace)), everywhere, nodes, at, tell)
    sys.exit(130)  # it ends only by interruption


@group.command()
@click.argument("name", metavar="[NAMESPACE]", default="")
@click.option("--every", type=options.Finite(0.5), default=2.0, show_default=True, help="Seconds.")
@options.context
def watch(name: str, every: float, context: str) -> None:
    """Watch the resources of a namespace."""
    from gpuctl.kube.pod import Where, kubectl_for
    from gpuctl.kube.resources import watch as draw

    draw(kubectl_for(Where(context, name)), every)


@group.command()
def palette() -> None:
    """Choose from a menu of common commands, with Helm and Terraform if they are installed."""
    from gpuctl.kube.palette import run

    sys.exit(run())
