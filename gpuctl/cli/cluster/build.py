"""cluster build: build an environment's image on OpenShift."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cluster.selection import EnvironmentSelection


@click.command()
@selected
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=None,
    help="The folder to build.  [default: git or the Dockerfile of the cluster file; else the current folder]",
)
@click.option("--follow", "-f", is_flag=True, help="Show the build's log.")
@click.option(
    "--timeout",
    type=options.Finite(1, 86400),
    default=7200,
    show_default=True,
    help="Time limit of the build, in seconds.",
)
@options.output
def build(request: EnvironmentSelection, folder: Path | None, follow: bool, timeout: float, form: Output) -> None:
    """Build an environment's image on OpenShift, and wait for the result.

    Files excluded by .dockerignore or by sync are not sent. Ctrl-C cancels the build.
    """
    from gpuctl.cluster.access import environment_of
    from gpuctl.cluster.deploy.flow import connect
    from gpuctl.cluster.image_build import flow
    from gpuctl.cluster.image_build.wait import BuildOptions

    env = environment_of(request)
    # Local mistakes are reported before a cluster is contacted.
    flow.check(env)
    sends = flow.read(env, folder)
    cluster = connect(env.cluster, request.context)
    show = partial(_say, err=form != "table") if follow else None
    made = flow.build(cluster, env, sends, BuildOptions(show, timeout), _tell)
    if form != "table":
        output.data(asdict(made), form)
        return
    digest = made.digest or "UNKNOWN: the registry reported none"
    click.echo(f"{made.build}: {made.image or 'the image'} is built, digest {digest}")


def _tell(subject: str, message: str) -> None:
    _say(f"{subject}: {message}", err=True)


def _say(line: str, err: bool) -> None:
    """Print a line; a closed pipe neither ends the build nor changes its result."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(line, err=err)
