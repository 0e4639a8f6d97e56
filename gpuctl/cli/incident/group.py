"""incident: the group of its commands."""

from __future__ import annotations

import click

from gpuctl.cli.incident import handle
from gpuctl.cli.incident.read import read
from gpuctl.cli.incident.storage import storage
from gpuctl.cli.shared.click_groups import Group


@click.group("incident", cls=Group)
def incident() -> None:
    """Find out what a failed job failed of: from the alert to the post-mortem."""


for command in (read, storage, handle.start, handle.resume, handle.replay, handle.list_):
    incident.add_command(command)
