"""The group `gpuctl nodes`: without a command it shows the nodes."""

from __future__ import annotations

import click

from gpuctl.cli.nodes.command import nodes as show
from gpuctl.cli.shared.click_groups import GroupWithDefault

MEMBERS = {
    "kill": "gpuctl.cli.nodes.kill:kill",
    "restart": "gpuctl.cli.nodes.service:restart",
    "reset": "gpuctl.cli.nodes.service:reset",
    "undrain": "gpuctl.cli.nodes.drain:undrain",
    "exec": "gpuctl.cli.nodes.login:execute",
    "ssh": "gpuctl.cli.nodes.login:ssh",
    "nvitop": "gpuctl.cli.nodes.login:nvitop",
}


@click.group("nodes", cls=GroupWithDefault, default="show", members=MEMBERS)
def nodes() -> None:
    """Show who is using which GPUs and since when, and which GPUs are free; all nodes are queried in parallel.

    Owners are persons, Slurm jobs, pods, containers and services. Facts that cannot be read are UNKNOWN, never idle.
    Exit code 1 for FAIL and UNKNOWN, 3 if a node was not reached. Commands that act on a node show what they would do,
    ask, and are in `gpuctl runs`.
    """


nodes.add_command(show, "show")
