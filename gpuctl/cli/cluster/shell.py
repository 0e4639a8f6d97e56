"""cluster shell: open a shell in a pod of an environment, or run a command in all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.shared import options, output
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from gpuctl.cluster.access import PodAccess

# Selects the pod of commands that use one.
rank = click.option("--rank", type=click.IntRange(0), default=None, metavar="N", help="The pod's number.  [default: 0]")
pod_choice = options.together(rank, click.option("--pod", metavar="POD", default="", help="The pod, by name."))


@click.command()
@selected
@pod_choice
@click.option("--all", "everywhere", is_flag=True, help="Run COMMAND in every pod at the same time.")
@click.argument("argv", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def shell(request: EnvironmentSelection, rank: int | None, pod: str, everywhere: bool, argv: tuple[str, ...]) -> None:
    """Open a shell in a pod, or run COMMAND there, in /workspace. The exit code is that of the program.

    With --all each output line starts with the pod's name; exit code 1 if COMMAND failed in a pod, 3 if it did not run
    to its end in one.
    """
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.access import open_lasting_access
    from gpuctl.cluster.shell import flow

    if everywhere and (rank is not None or pod or not argv):
        raise click.UsageError("--all takes a COMMAND, and neither --rank nor --pod")
    if rank is not None and pod:
        raise click.UsageError("pass either --rank or --pod")
    access = open_lasting_access(request)
    if everywhere:
        _all(access, argv)
    pod_object = pod_selection.pod_of_rank(
        access.cluster, access.env, f"open a shell on {access.env.name}", rank or 0, pod
    )
    raise click.exceptions.Exit(flow.enter(access, pod_object, argv, partial(click.echo, err=True)))


def _all(access: PodAccess, argv: tuple[str, ...]) -> None:
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.shell import exec_all
    from gpuctl.core.signals import ctrl_c

    pods = pod_selection.all_of(access.cluster, access.env, f"run {argv[0]} on {access.env.name}")
    width = max(len(pod_selection.name_of(pod)) for pod in pods)

    def show(pod: str, line: str) -> None:
        click.echo(f"{pod:<{width}}  {line}")

    with ctrl_c() as broken_off:
        done = exec_all.run(access.cluster, pods, argv, show, broken_off)
    for result in done:
        if result.code != 0:
            how = (
                f"did not run to its end: {result.wrong}"
                if result.code is None
                else f"ended with exit code {result.code}"
            )
            click.echo(f"{result.pod}: {how}", err=True)
    if len(pods) > 1 and all(result.code == 0 for result in done):
        click.echo(f"{output.plural(len(done), 'pod')}: all succeeded", err=True)
    raise click.exceptions.Exit(INTERRUPTED if broken_off() else exec_all.code(done))
