"""cluster logs: the logs of an environment's pods."""

from __future__ import annotations

import click

from gpuctl.cli.cluster.environment_options import selection_options
from gpuctl.cli.shared import options
from gpuctl.cluster.selection import LogsRequest
from gpuctl.core.exit_codes import INTERRUPTED, NOT_DONE


@click.command()
@options.as_request(
    LogsRequest,
    selection_options,
    click.option("--rank", type=click.IntRange(0), default=None, metavar="N", help="Which pod.  [default: all]"),
    click.option("--follow", "-f", is_flag=True, help="Follow the logs until Ctrl-C."),
    click.option("--previous", "-p", is_flag=True, help="The logs before the containers' last restart."),
    click.option("--tail", type=click.IntRange(0), default=200, show_default=True, help="Lines of each pod."),
    click.option("--since", type=options.Duration(), default=None, help="Only lines of the last TIME, such as 24h."),
)
def logs(request: LogsRequest) -> None:
    """Show the logs of the pods.

    They hold what the start of the pod, sshd and the editors print; `train --attach` shows a training's output. Lines
    of several pods start with the pod's name. Exit code 3 if the log of a pod could not be read.
    """
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.access import open_access
    from gpuctl.cluster.shell import logs as reader
    from gpuctl.core.signals import ctrl_c

    access = open_access(request.selection)
    doing = f"read the logs of {access.env.name}"
    pods = pod_selection.all_of(access.cluster, access.env, doing)
    if request.rank is not None:
        pods = [pod_selection.pod_of_rank(access.cluster, access.env, doing, request.rank)]
    width = max(len(pod_selection.name_of(pod)) for pod in pods)

    def show(pod: str, line: str) -> None:
        click.echo(line if request.rank is not None else f"{pod:<{width}}  {line}")

    with ctrl_c() as broken_off:
        results = reader.read(access.cluster, pods, request, show, broken_off)
    for result in results:
        if result.code is None:
            click.echo(f"{result.pod}: its log could not be read: {result.wrong}", err=True)
    unread = any(result.code is None for result in results)
    raise click.exceptions.Exit(INTERRUPTED if broken_off() else NOT_DONE if unread else 0)
