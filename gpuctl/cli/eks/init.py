"""eks init: write a first cluster file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gpuctl.cli.shared import files
from gpuctl.core.errors import InvalidInput

WRITE = "write the cluster file"
VERSION = "1.36"


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--version", "version", metavar="VERSION", default=VERSION, show_default=True, help="Kubernetes version.")
def init(file: Path | None, version: str) -> None:
    """Write a cluster file with one group of GPU nodes; without FILE, eks/NAME.yaml.

    Takes values from the environment: CLUSTER_NAME, AWS_REGION, NODE_TYPE, MIN_NODES, MAX_NODES and DESIRED_NODES.
    An existing file is never changed.
    """
    from gpuctl.eks import cluster_file, starter

    name = os.environ.get("CLUSTER_NAME") or starter.DEFAULTS["CLUSTER_NAME"]
    path = file or Path(cluster_file.FOLDER, f"{name}.yaml")
    if path.exists():
        raise InvalidInput(f"{WRITE} {path}", "it exists", "name another file, or edit this one")
    text = starter.text(os.environ, version)
    cluster = cluster_file.check(text, f"{WRITE} {path}")
    if file is None:
        _make_folder(path.parent)
    files.check_folder(path, WRITE)
    files.write(path, text, WRITE, files.READABLE)
    click.echo(f"wrote {path}: `gpuctl eks plan {cluster.name}` predicts what would fail, and its cost")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"make the folder {folder}", error.strerror or str(error), "name a FILE elsewhere"
        ) from error
