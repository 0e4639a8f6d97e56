"""The group `gpuctl eks`."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group

MEMBERS = {
    "init": "gpuctl.cli.eks.init:init",
    "plan": "gpuctl.cli.eks.plan:plan",
    "create": "gpuctl.cli.eks.create:create",
    "resume": "gpuctl.cli.eks.create:resume",
    "destroy": "gpuctl.cli.eks.destroy:destroy",
    "status": "gpuctl.cli.eks.status:status",
    "cost": "gpuctl.cli.eks.cost:cost",
    "reap": "gpuctl.cli.eks.status:reap",
    "image": "gpuctl.cli.eks.image:image",
    "pod": "gpuctl.cli.eks.pod:pod",
    "keys": "gpuctl.cli.eks.pod:keys",
    "connect": "gpuctl.cli.eks.connect:connect",
    "jupyter": "gpuctl.cli.eks.jupyter:jupyter",
    "cp": "gpuctl.cli.eks.connect:copy",
    "test-gpu": "gpuctl.cli.eks.connect:test_gpu",
    "token": "gpuctl.cli.eks.connect:token",
    "tunnel": "gpuctl.cli.eks.connect:tunnel",
}


@click.group("eks", cls=Group, members=MEMBERS)
def eks() -> None:
    """EKS clusters with GPU nodes: predict what AWS would refuse and what it costs, make them, remove them."""
