"""dash: what the commands print, on one screen that is read again and again."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuctl.cli.dash.names import NAMES
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.nodes.slurm_options import slurm
from gpuctl.cli.reservations.reserve import socket_option
from gpuctl.cli.shared import options
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import INTERNAL_ERROR, INTERRUPTED

if TYPE_CHECKING:
    from gpuctl.cli.dash.model import Program
    from gpuctl.cli.dash.screen.reader import Reader

WEB_DRIVER = "textual.drivers.web_driver:WebDriver"  # draws for a browser, through pipes
END_S = 2.0  # for readings to end with their connections


@click.command()
@options.as_request(
    DashRequest,
    click.option("--panel", type=click.Choice(NAMES), default=NAMES[0], show_default=True, help="The first panel."),
    options.inventory,
    options.limit,
    options.other_context("Kubernetes context: show which pods have GPUs, from the API."),
    slurm,
    click.option(
        "--from",
        "sources",
        metavar="FILE",
        type=click.Path(exists=True, path_type=Path),
        multiple=True,
        help="Show recorded facts, of `nodes --save` or `audit --save`, and query no node; repeatable.",
    ),
    click.option(
        "--every",
        type=options.Finite(1, 86400),
        default=5,
        show_default=True,
        help="Seconds between two readings of the nodes.",
    ),
    click.option(
        "--timeout",
        type=options.Finite(1, 86400),
        default=60,
        show_default=True,
        help="Time limit per node, in seconds; a node that does not answer delays no other.",
    ),
    click.option("--region", metavar="NAME", default="", callback=options.not_empty, help="AWS region of the subnets."),
    options.aws_profile,
    socket_option,
    click.option(
        "--allow-changes",
        is_flag=True,
        help="Also run commands that may change production, by the names of inventory and context, after a question.",
    ),
    click.option(
        "--web",
        metavar="ADDRESS:PORT",
        default="",
        callback=options.not_empty,
        help="Serve the screen to a browser, such as at 127.0.0.1:8080, until Ctrl-C; it runs no commands there.",
    ),
    click.option(
        "--allow-remote",
        is_flag=True,
        help="With --web: accept an address that other machines reach. There is no encryption.",
    ),
)
def dash(request: DashRequest) -> None:
    """Show nodes, checks, pods, runs, reservations, subnets and NCCL measurements on one screen, with a key for each.

    Each panel shows what a command prints; `c` copies the command, `?` lists all keys. Acts are commands in an open
    line: `x` runs one, after a question; in production only with --allow-changes. A panel is read only while it is
    shown.
    """
    if request.web:
        _serve(request)
    elif request.allow_remote:
        raise InvalidInput("draw the screen", "--allow-remote is for --web", "add --web ADDRESS:PORT, or leave it out")
    if os.environ.get("TEXTUAL_DRIVER") != WEB_DRIVER:
        _need_terminal()
    from gpuctl.cli.dash import acts
    from gpuctl.cli.dash.panels import build
    from gpuctl.cli.dash.screen.app import Dash
    from gpuctl.core import settings

    def program_of(command: str) -> Program:
        return acts.program(command, settings.load(), request)

    app = Dash(build(request), request.panel, program_of)
    with contextlib.suppress(KeyboardInterrupt):
        app.run()
    code = app.return_value
    if code is None:  # SIGTERM, or SIGHUP of a closed terminal; else Textual has printed an error
        code = INTERNAL_ERROR if app.return_code else INTERRUPTED
    _end_readings(app.readers.values(), code)


def _serve(request: DashRequest) -> NoReturn:
    """Serve the screen until Ctrl-C, each tab with a process of its own; errors as on a terminal."""
    from gpuctl.cli.dash.panels import build
    from gpuctl.workflows import web_screen

    if request.allow_changes:
        wrong = "--allow-changes cannot be combined with --web, which runs no commands"
        raise InvalidInput(web_screen.DOING, wrong, "leave one of them out")
    at = web_screen.address(request.web, allow_remote=request.allow_remote)
    build(request)

    def on_ready(url: str) -> None:
        click.echo(f"open {url}")
        click.echo("Whoever has this address reads the screen; Ctrl-C ends it.", err=True)

    web_screen.serve(at, request.arguments, "gpuctl dash", on_ready)
    sys.exit(INTERRUPTED)


def _end_readings(readers: Iterable[Reader], code: int) -> NoReturn:
    """End the process, and with it the readings, which may hang: the programs of their connections are ended first."""
    from gpuctl.workflows.nodes_live import end_connections

    for reader in readers:
        reader.end()
    end = time.monotonic() + END_S
    end_connections(END_S)
    for reader in readers:
        if reader.ident is not None:
            reader.join(max(0.0, end - time.monotonic()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the interpreter would wait for threads of a reading that hangs


def _need_terminal() -> None:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams):  # None: closed by the caller
        wrong = "input and output are not a terminal"
        raise InvalidInput("draw the screen", wrong, "run it in a terminal; the commands themselves print to files")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        wrong = f"the terminal TERM={os.environ.get('TERM', '')!r} cannot move its cursor"
        raise InvalidInput("draw the screen", wrong, "use another terminal, or the commands themselves")
