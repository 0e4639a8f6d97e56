"""cluster discover: draft a cluster file from a live cluster."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.shared import options
from gpuctl.core.exit_codes import PROBLEMS


@click.command()
@options.context
@click.option(
    "--namespace", metavar="NAME", default="", help="The namespace of environments.  [default: the context's]"
)
@click.option("--image", metavar="IMAGE", default="", help="The pods' image, which cannot be discovered.")
@click.option(
    "--output-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the draft to FILE.  [default: print it]",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def discover(context: str, namespace: str, image: str, output_file: Path | None, force: bool) -> None:
    """Draft a cluster file from a live cluster, which is only read.

    A comment gives the origin of every value. Values that could not be determined are comments; if the file cannot be
    used without them, they are listed on standard error, and the exit code is 1.
    """
    from gpuctl.cluster.discover import flow

    if output_file:
        flow.check_free(output_file, force)
    drafted = flow.discover(context, namespace, image, output_file.stem if output_file else "")
    if output_file:
        flow.write(output_file, drafted.text, force)
        click.echo(f"written to {output_file}", err=True)
    else:
        click.echo(drafted.text, nl=False)
    for path, fill in drafted.left:
        click.echo(f"fill in: {path}: {fill}", err=True)
    # Apart from open fields nothing should be wrong; mistakes are listed with their lines.
    wrong = () if drafted.left else flow.mistakes(drafted)
    for mistake in wrong:
        click.echo(f"correct: {mistake}", err=True)
    raise click.exceptions.Exit(PROBLEMS if drafted.left or wrong else 0)
