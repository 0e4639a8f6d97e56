"""gpu-node: the software stack of GPU hosts."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group


@click.group("gpu-node", cls=Group, members={"plan": "gpuctl.cli.gpu_node.plan:plan"})
def group() -> None:
    """Plan the driver, fabric services, container toolkit, DCGM and EFA of GPU hosts."""
