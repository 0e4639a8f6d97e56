"""schema: print the JSON schemas of gpuctl's output."""

from __future__ import annotations

import click

from gpuctl.cli.shared import output


@click.command()
@click.argument("name", type=click.Choice(["findings"]))
def schema(name: str) -> None:
    """Print the JSON schema of an output format.

    `findings` is the format of --output json for all commands that report findings.
    """
    from gpuctl.domain.report import JSON_SCHEMA

    output.data({"findings": JSON_SCHEMA}[name], "json")
