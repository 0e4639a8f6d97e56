"""cluster dev-session: a program while it is being written."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster import sync
from gpuctl.cli.cluster.environment_options import which
from gpuctl.cli.cluster.shell import open_door, rank
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.cluster.sync.local import Local
    from gpuctl.remote.model import Ended
    from gpuctl.workflows.dev_session import Session

SIGNALLED = 128  # and the number of the signal, as a shell tells it
NOT_KNOWN = 3


@click.command("dev-session")
@which
@rank
@sync.how
@click.option("--debug", is_flag=True, help="Run it under debugpy, and forward its port here.")
@click.option("--wait-for-client", "wait", is_flag=True, help="The same, and begin once a debugger is attached.")
@click.option("--no-restart", is_flag=True, help="Run it once: changes are synced, and it ends the session.")
@click.argument("script", metavar="-- SCRIPT")
@click.argument("words", metavar="[ARGS...]", nargs=-1, type=click.UNPROCESSED)
def dev_session(name: str, rank: int | None, debug: bool, wait: bool, no_restart: bool, **given: Any) -> None:
    """Keep all pods as the folder here is, run SCRIPT of it in one, and run it anew on every change, until Ctrl-C.

    It is begun anew once all pods have the change; one that has ended is begun again with the next. At the end it is
    ended in the pod, with all that it started.
    """
    from gpuctl.cluster.dev import program
    from gpuctl.core.signals import ctrl_c
    from gpuctl.workflows import dev_session as cluster_dev

    session = _session(name, rank or 0, debug or wait, wait, not no_restart, given)
    program.check(session.there, session.wanted)
    with ctrl_c() as asked:
        ended = cluster_dev.run(session, asked)
    if ended is None:
        click.echo("dev-session ended: nothing of it runs in the pods", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    raise click.exceptions.Exit(_code(ended))


def _code(ended: Ended) -> int:
    if ended.code is not None:
        return ended.code
    return NOT_KNOWN if ended.signal is None else SIGNALLED + ended.signal


def _session(name: str, rank: int, debug: bool, wait: bool, restarts: bool, given: dict[str, Any]) -> Session:
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.dev import program
    from gpuctl.cluster.environment import CONTAINER
    from gpuctl.cluster.sync import excludes, flow, watch
    from gpuctl.cluster.sync import pods as targets
    from gpuctl.cluster.sync.local import Local
    from gpuctl.cluster.sync.push import Wanted as Brought
    from gpuctl.remote.model import There
    from gpuctl.workflows.dev_session import Session

    source, target = sync.source_of(given["source"]), sync.target_of(given["target"])
    local = Local(source, excludes.of(source, given["exclude"]))
    script = _script(given["script"], local)
    door = open_door(name, given)
    port = door.env.cluster.ports.debug if debug else 0
    wanted = program.Wanted(script, given["words"], target, given["python"], port, wait)
    doing = f"run {script} on {door.env.name}"
    pod = pod_selection.pod_of_rank(door.cluster, door.env, doing, rank)
    pod_selection.check(pod, doing)
    found = targets.labelled(door.cluster, door.env.selector, target)
    screen = Screen()
    way, brought = flow.Way(door.cluster, given["python"]), Brought(target, given["force"])
    settings = watch.Settings(way, local, brought, screen)
    there = There(door.cluster, pod_selection.name_of(pod), CONTAINER, python=given["python"])
    return Session(door, there, wanted, settings, found, rank, restarts, screen)


def _script(text: str, local: Local) -> str:
    """The script as a path in the folder; `InvalidInput` where the pods would not get it."""
    doing = f"run {text}"
    path = Path(text)
    inside = Path(os.path.normpath(path if path.is_absolute() else local.source / path))
    if not inside.is_relative_to(local.source):
        raise InvalidInput(doing, f"it is not in {local.source}", "give a path inside of the folder that is synced")
    found = str(PurePosixPath(inside.relative_to(local.source)))
    if not inside.is_file():
        raise InvalidInput(
            doing, f"there is no such file in {local.source}", "--source names the folder of the project"
        )
    if found not in local.found.items:
        raise InvalidInput(doing, "it is left out of what is synced", "look at .gpuctlignore and --exclude")
    return found


class Screen(sync.Lines):
    """What the program prints goes to standard output as it is; our own lines to standard error, each on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False  # of a line of the program

    def out(self, part: bytes) -> None:
        click.echo(part, nl=False)
        self.inside = not part.endswith(b"\n")

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed; the program is ended all the same
            click.echo(("\n" if self.inside else "") + f"[{time.strftime('%H:%M:%S')}] {text}", err=True)
        self.inside = False

    def _say(self, text: str) -> None:
        self.say(text)
