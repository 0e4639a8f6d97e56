"""cluster discover: draft a cluster file from a live cluster."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.shared import options

PROBLEMS = 1


@click.command()
@options.context
@click.option("--namespace", metavar="NAME", default="", help="Where environments go.  [default: the context's]")
@click.option("--image", metavar="IMAGE", default="", help="What the pods run: no cluster tells it.")
@click.option(
    "--output-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=None,
    help="Write it there.  [default: print it]",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def discover(context: str, namespace: str, image: str, output_file: Path | None, force: bool) -> None:
    """Draft a cluster file from what a live cluster says of itself; nothing is changed there.

    Every value says where it came from. What could not be found is a comment that says so; where the file cannot be
    used without it, that is told on standard error, and the exit code is 1.
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
        click.echo(f"to be filled in: {path}: {fill}", err=True)
    # Besides what is left open nothing should be wrong; what is, is told with its line.
    wrong = () if drafted.left else flow.mistakes(drafted)
    for mistake in wrong:
        click.echo(f"to be mended: {mistake}", err=True)
    raise click.exceptions.Exit(PROBLEMS if drafted.left or wrong else 0)
