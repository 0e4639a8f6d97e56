"""cluster: cluster files, the Kubernetes objects rendered from them, and environments on live clusters."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group

MEMBERS = {
    "list": "gpuctl.cli.cluster.file:listing",
    "show": "gpuctl.cli.cluster.file:show",
    "validate": "gpuctl.cli.cluster.file:validate",
    "schema": "gpuctl.cli.cluster.file:schema",
    "migrate": "gpuctl.cli.cluster.file:migrate",
    "discover": "gpuctl.cli.cluster.discover:discover",
    "render": "gpuctl.cli.cluster.render:render",
    "build": "gpuctl.cli.cluster.build:build",
    "diff": "gpuctl.cli.cluster.deploy:diff",
    "deploy": "gpuctl.cli.cluster.deploy:deploy",
    "status": "gpuctl.cli.cluster.deploy:status",
    "scale": "gpuctl.cli.cluster.deploy:scale",
    "destroy": "gpuctl.cli.cluster.deploy:destroy",
    "sync": "gpuctl.cli.cluster.sync:sync",
    "train": "gpuctl.cli.cluster.train:train",
    "test": "gpuctl.cli.cluster.test:test",
    "shell": "gpuctl.cli.cluster.shell:shell",
    "forward": "gpuctl.cli.cluster.forward:forward",
    "vscode": "gpuctl.cli.cluster.editors:vscode",
    "jupyter": "gpuctl.cli.cluster.editors:jupyter",
    "logs": "gpuctl.cli.cluster.logs:logs",
    "dev-session": "gpuctl.cli.cluster.dev:dev_session",
    "doctor": "gpuctl.cli.cluster.doctor:doctor",
}


@click.group("cluster", cls=Group, members=MEMBERS)
def group() -> None:
    """Multi-node ML environments on OpenShift and Kubernetes, from one file per cluster."""
