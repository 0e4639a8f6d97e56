"""The group `gpuctl eks`."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group


@click.group("eks", cls=Group, members={"init": "gpuctl.cli.eks.init:init", "plan": "gpuctl.cli.eks.plan:plan"})
def eks() -> None:
    """Plan EKS clusters with GPU nodes: what AWS would refuse, and what it costs. Nothing is made or changed."""
