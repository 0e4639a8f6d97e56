"""schema: the JSON schemas of what gpuctl prints."""

from __future__ import annotations

import click

from gpuctl.cli.shared import output


@click.command()
@click.argument("name", type=click.Choice(["findings"]))
def schema(name: str) -> None:
    """Print the JSON schema of an output format: `findings` is what commands that judge print with --output json."""
    from gpuctl.domain.report import JSON_SCHEMA

    output.data({"findings": JSON_SCHEMA}[name], "json")
