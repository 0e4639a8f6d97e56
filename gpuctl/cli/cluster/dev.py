"""cluster dev-session: run a script in a pod while it is being edited."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster import sync
from gpuctl.cli.cluster.environment_options import which
from gpuctl.cli.cluster.shell import open_access, rank
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.cluster.sync.local import Local
    from gpuctl.remote.model import ProcessExit
    from gpuctl.workflows.dev_session import Session

SIGNALLED = 128  # plus the signal number, as shells report it
NOT_KNOWN = 3


@click.command("dev-session")
@which
@rank
@sync.sync_options
@click.option("--debug", is_flag=True, help="Run it under debugpy and forward its port.")
@click.option("--wait-for-client", "wait", is_flag=True, help="As --debug, and start once a debugger is attached.")
@click.option("--no-restart", is_flag=True, help="Run it once; changes are synced, and its end ends the session.")
@click.argument("script", metavar="-- SCRIPT")
@click.argument("args", metavar="[ARGS...]", nargs=-1, type=click.UNPROCESSED)
def dev_session(name: str, rank: int | None, debug: bool, wait: bool, no_restart: bool, **params: Any) -> None:
    """Sync this folder to all pods and run SCRIPT in one of them, restarting it on every change until Ctrl-C.

    A restart waits until all pods have the change; a script that has ended is restarted on the next one. At the end the
    script and everything it started are ended in the pod.
    """
    from gpuctl.cluster.dev import program
    from gpuctl.core.signals import ctrl_c
    from gpuctl.workflows import dev_session as cluster_dev

    session = _session(name, rank or 0, debug or wait, wait, not no_restart, params)
    program.check(session.target, session.script_run)
    with ctrl_c() as interrupted:
        status = cluster_dev.run(session, interrupted)
    if status is None:
        click.echo("dev-session ended; none of its processes is left in the pods", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    raise click.exceptions.Exit(_code(status))


def _code(status: ProcessExit) -> int:
    if status.code is not None:
        return status.code
    return NOT_KNOWN if status.signal is None else SIGNALLED + status.signal


def _session(name: str, rank: int, debug: bool, wait: bool, restarts: bool, params: dict[str, Any]) -> Session:
    from gpuctl.cluster import pod_selection
    from gpuctl.cluster.dev import program
    from gpuctl.cluster.environment import CONTAINER
    from gpuctl.cluster.sync import excludes, flow, watch
    from gpuctl.cluster.sync import pods as targets
    from gpuctl.cluster.sync.local import Local
    from gpuctl.cluster.sync.push import SyncRequest
    from gpuctl.remote.model import PodTarget
    from gpuctl.workflows.dev_session import Session

    source, target = sync.source_of(params["source"]), sync.target_of(params["target"])
    local = Local(source, excludes.of(source, params["exclude"]))
    script = _script(params["script"], local)
    access = open_access(name, params)
    port = access.env.cluster.ports.debug if debug else 0
    script_run = program.ScriptRun(script, params["args"], target, params["python"], port, wait)
    doing = f"run {script} on {access.env.name}"
    pod = pod_selection.pod_of_rank(access.cluster, access.env, doing, rank)
    pod_selection.check(pod, doing)
    sync_targets = targets.labelled(access.cluster, access.env.selector, target)
    screen = Screen()
    connector, sync_request = flow.PodConnector(access.cluster, params["python"]), SyncRequest(target, params["force"])
    settings = watch.Settings(connector, local, sync_request, screen)
    pod_target = PodTarget(access.cluster, pod_selection.name_of(pod), CONTAINER, python=params["python"])
    return Session(access, pod_target, script_run, settings, sync_targets, rank, restarts, screen)


def _script(text: str, local: Local) -> str:
    """Return the script's path in the folder; `InvalidInput` if the pods would not receive it."""
    doing = f"run {text}"
    path = Path(text)
    inside = Path(os.path.normpath(path if path.is_absolute() else local.source / path))
    if not inside.is_relative_to(local.source):
        raise InvalidInput(doing, f"it is not in {local.source}", "give a path inside the synced folder")
    name = str(PurePosixPath(inside.relative_to(local.source)))
    if not inside.is_file():
        raise InvalidInput(
            doing, f"there is no such file in {local.source}", "--source names the folder of the project"
        )
    if name not in local.scanned.items:
        raise InvalidInput(doing, "it is excluded from the sync", "check .gpuctlignore and --exclude")
    return name


class Screen(sync.Lines):
    """The program's output goes to standard output unchanged; our messages to standard error, each on its own line."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False  # in the middle of an output line

    def out(self, part: bytes) -> None:
        click.echo(part, nl=False)
        self.inside = not part.endswith(b"\n")

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed; the program is ended anyway
            click.echo(("\n" if self.inside else "") + f"[{time.strftime('%H:%M:%S')}] {text}", err=True)
        self.inside = False

    def _say(self, text: str) -> None:
        self.say(text)
