"""cluster dev-session: run a script in a pod while it is being edited."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster import sync
from gpuctl.cli.cluster.environment_options import selection_options
from gpuctl.cli.cluster.shell import rank
from gpuctl.cli.shared import options
from gpuctl.cluster.dev.request import DevRequest
from gpuctl.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from gpuctl.remote.model import ProcessExit

SIGNALLED = 128  # plus the signal number, as shells report it
NOT_KNOWN = 3


@click.command("dev-session")
@options.as_request(
    DevRequest,
    selection_options,
    rank,
    sync.folder_options,
    click.option("--debug", is_flag=True, help="Run it under debugpy and forward its port."),
    click.option("--wait-for-client", "wait", is_flag=True, help="As --debug, and start once a debugger is attached."),
    click.option("--no-restart", is_flag=True, help="Do not restart on changes; exit when the script ends."),
    click.argument("script", metavar="-- SCRIPT"),
    click.argument("args", metavar="[ARGS...]", nargs=-1, type=click.UNPROCESSED),
)
def dev_session(request: DevRequest) -> None:
    """Sync this folder to all pods and run SCRIPT in one of them, restarting it on every change until Ctrl-C.

    A restart waits until all pods have the change; a script that has ended is restarted on the next one. At the end the
    script and everything it started are ended in the pod.
    """
    from gpuctl.core.signals import ctrl_c
    from gpuctl.workflows import dev_session as workflow

    session = workflow.prepare(request, Screen())
    with ctrl_c() as interrupted:
        status = workflow.run(session, interrupted)
    if status is None:
        click.echo("dev-session ended; none of its processes is left in the pods", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    raise click.exceptions.Exit(_code(status))


def _code(status: ProcessExit) -> int:
    if status.code is not None:
        return status.code
    return NOT_KNOWN if status.signal is None else SIGNALLED + status.signal


class Screen(sync.Lines):
    """The program's output goes to standard output unchanged; our messages to standard error, each on its own line."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False  # in the middle of an output line

    def out(self, part: bytes) -> None:
        click.echo(part, nl=False)
        self.inside = not part.endswith(b"\n")

    def message(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed; the program is ended anyway
            click.echo(("\n" if self.inside else "") + f"[{time.strftime('%H:%M:%S')}] {text}", err=True)
        self.inside = False

    def _say(self, text: str) -> None:
        self.message(text)
