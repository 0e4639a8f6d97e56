"""gpu-node: the software stack of GPU hosts."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group


@click.group("gpu-node", cls=Group, members={name: f"gpuctl.cli.gpu_node.{name}:{name}" for name in ("plan", "verify")})
def group() -> None:
    """Plan and verify the driver, fabric services, container toolkit, DCGM and EFA of GPU hosts."""
