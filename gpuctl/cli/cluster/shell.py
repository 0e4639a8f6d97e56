"""cluster shell: a shell in a pod of an environment, or a command in all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import environment_of, which
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.shared import options, output

if TYPE_CHECKING:
    from gpuctl.cluster.shell.flow import Door

# Which pod, for commands that go into one.
rank = click.option("--rank", type=click.IntRange(0), default=None, metavar="N", help="Which pod.  [default: 0]")
one = options.together(rank, click.option("--pod", metavar="POD", default="", help="The same by its name."))


@click.command()
@which
@one
@click.option("--all", "everywhere", is_flag=True, help="Run COMMAND in every pod at the same time.")
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, rank: int | None, pod: str, everywhere: bool, words: tuple[str, ...], **given: Any) -> None:
    """Open a shell in a pod, or run COMMAND there, in /workspace; its exit code is that of the program.

    With --all each line of the output says from which pod it is; exit code 1 where COMMAND failed in one of them, 3
    where it did not run to its end in one.
    """
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.shell import flow

    if everywhere and (rank is not None or pod or not words):
        raise click.UsageError("--all takes a COMMAND, and neither --rank nor --pod")
    if rank is not None and pod:
        raise click.UsageError("give either --rank or --pod")
    door = open_door(name, given)
    if everywhere:
        _all(door, words)
    found = pod_selection.pod_of_rank(door.cluster, door.env, f"open a shell on {door.env.name}", rank or 0, pod)
    raise click.exceptions.Exit(flow.enter(door, found, words, partial(click.echo, err=True)))


def open_door(name: str, given: dict[str, Any]) -> Door:
    """The environment that was named, on its cluster. The context by its name: a switch elsewhere does not move it."""
    from gpuctl.cluster.deploy.flow import connect
    from gpuctl.cluster.shell.flow import Door
    from gpuctl.edges.kube import config

    now = config.current(*config.files())
    context = given["context"] or (now.name if now else "")
    env = environment_of(name, given)
    return Door(connect(env.cluster, context), env, context)


def _all(door: Door, words: tuple[str, ...]) -> None:
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.shell import exec_all as everywhere
    from gpuctl.core.signals import ctrl_c

    found = pod_selection.all_of(door.cluster, door.env, f"run {words[0]} on {door.env.name}")
    width = max(len(pod_selection.name_of(each)) for each in found)

    def say(pod: str, line: str) -> None:
        click.echo(f"{pod:<{width}}  {line}")

    with ctrl_c() as broken_off:
        done = everywhere.run(door.cluster, found, words, say, broken_off)
    for each in done:
        if each.code != 0:
            how = (
                f"did not run it to its end: {each.wrong}" if each.code is None else f"ended with exit code {each.code}"
            )
            click.echo(f"{each.pod}: {how}", err=True)
    if len(found) > 1 and all(each.code == 0 for each in done):
        click.echo(f"{output.plural(len(done), 'pod')}: all well", err=True)
    raise click.exceptions.Exit(INTERRUPTED if broken_off() else everywhere.code(done))
