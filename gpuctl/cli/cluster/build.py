"""cluster build: have OpenShift build an environment's image."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from gpuctl.cli.cluster.environment_options import environment_of, which
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output


@click.command()
@which
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=None,
    help="Build this folder.  [default: git or the Dockerfile of the cluster file; else this folder]",
)
@click.option("--follow", "-f", is_flag=True, help="Show the build's log.")
@click.option(
    "--timeout", type=options.Finite(1, 86400), default=7200, show_default=True, help="Seconds the build may take."
)
@options.output
def build(name: str, folder: Path | None, follow: bool, timeout: float, form: Output, **given: Any) -> None:
    """Build an environment's image on OpenShift, and wait until it is there.

    A folder is sent without what .dockerignore and a sync leave out. Ctrl-C cancels the build.
    """
    from gpuctl.cluster.deploy.flow import connect
    from gpuctl.cluster.image_build import flow
    from gpuctl.cluster.image_build.wait import Wish

    env = environment_of(name, given)
    # What is wrong here is told before any cluster is asked.
    flow.check(env)
    sends = flow.read(env, folder)
    cluster = connect(env.cluster, given["context"])
    show = partial(_say, err=form != "table") if follow else None
    made = flow.build(cluster, env, sends, Wish(show, timeout), _tell)
    if form != "table":
        output.data(asdict(made), form)
        return
    digest = made.digest or "UNKNOWN: the registry told none"
    click.echo(f"{made.build}: {made.image or 'the image'} is built, digest {digest}")


def _tell(subject: str, message: str) -> None:
    _say(f"{subject}: {message}", err=True)


def _say(line: str, err: bool) -> None:
    """That nobody reads it any more does not end the build, nor say how it ended."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(line, err=err)
