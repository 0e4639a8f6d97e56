"""Options that select the environment of a `gpuctl cluster` command."""

from __future__ import annotations

import click

from gpuctl.cli.shared import options
from gpuctl.cluster.selection import EnvironmentSelection

name = click.argument("name", metavar="NAME|FILE")
of_environment = options.together(
    click.option("--environment", metavar="NAME", default="", help="The environment's name.  [default: from the file]"),
    click.option("--single", is_flag=True, help="Use the standalone pod, NAME-single."),
)
selection_options = options.together(name, of_environment, options.context)
# The command receives the selection as `request`.
selected = options.as_request(EnvironmentSelection, selection_options)
