"""The group `gpuctl subnets`: without a command it shows the subnets."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import GroupWithDefault
from gpuctl.cli.subnets.show import show

MEMBERS = {
    "add": "gpuctl.cli.subnets.add:add",
    "diagnose": "gpuctl.cli.subnets.diagnose:diagnose",
    "forecast": "gpuctl.cli.subnets.forecast:forecast",
}


@click.group("subnets", cls=GroupWithDefault, default="show", members=MEMBERS)
def subnets() -> None:
    """Show the subnets of AWS: free addresses and /28 blocks, who holds the others, and what is left behind.

    Nothing is changed. Exit code 1 for FAIL and UNKNOWN, 3 if AWS does not answer or does not allow it.
    """


subnets.add_command(show, "show")
