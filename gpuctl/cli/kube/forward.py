"""kube forward: local ports to pods, in the foreground or in the background."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from gpuctl.cli.kube.pod import scope
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import GroupWithDefault
from gpuctl.cli.shared.output import Output

background = click.option(
    "--background", is_flag=True, help="Return when they run; `list` shows them, `stop` ends them."
)


@click.group(cls=GroupWithDefault, default="start")
def forward() -> None:
    """Forward local ports to pods until Ctrl-C, or in the background.

    Name one POD and its ports (trainer-0 8081:8080), or select several pods by label (-l app=web --from 8081 --to
    8080). A broken forward is restarted; if a pod is replaced, the forward moves to its replacement. Forwards in the
    background run until they are stopped, also after this terminal is closed.
    """


@forward.command(hidden=True)
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
@background
@options.probe_every
@scope
def start(
    pod_name: str,
    ports: tuple[str, ...],
    selector: str,
    first: int | None,
    remote: tuple[int, ...],
    save: str,
    saved_name: str,
    wizard: bool,
    background: bool,
    probe_every: float,
    context: str,
    namespace: str,
) -> None:
    """Forward local ports to pods: the command that `forward` itself runs."""
    from gpuctl.cli.shared.forward_display import go, go_background
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
    sys.exit(go_background(request, probe_every, wizard) if background else go(request, probe_every))


@forward.command("list")
@options.output
def list_running(form: Output) -> None:
    """List the forwards that run in the background, with their state."""
    from gpuctl.kube.forward import service

    services = service.running()
    if form != "table":
        output.data([asdict(entry) | {"ports": [asdict(port) for port in entry.ports]} for entry in services], form)
        return
    rows = [
        (
            *(entry.number, f"127.0.0.1:{port.local}", port.pod, port.remote, port.state),
            *(entry.namespace, entry.context, port.why or entry.trouble),
        )
        for entry in services
        for port in entry.ports
    ]
    output.table(("NUMBER", "LOCAL", "POD", "PORT", "STATE", "NAMESPACE", "CONTEXT", ""), rows)
    if not rows:
        click.echo("no forwards run in the background")


@forward.command()
@click.argument("numbers", metavar="[NUMBER]...", nargs=-1, type=click.IntRange(1))
@click.option("--all", "all_running", is_flag=True, help="Stop all of them.")
def stop(numbers: tuple[int, ...], all_running: bool) -> None:
    """Stop forwards that run in the background, by their numbers in the list."""
    from gpuctl.kube.forward import service

    if bool(numbers) == all_running:
        raise click.UsageError("pass the numbers of `gpuctl kube forward list`, or --all")
    stopped = service.stop(numbers)
    for entry in stopped:
        click.echo(f"stopped {entry.number}: {', '.join(f'127.0.0.1:{port.local}' for port in entry.ports)}")
    if not stopped:
        click.echo("no forwards run in the background")


@forward.command(hidden=True)
def serve() -> None:
    """Run as the background process of forwards, with the request on standard input."""
    from gpuctl.kube.forward import service

    service.serve(sys.stdin.read())
