"""cluster: the cluster files, the Kubernetes objects that follow from one, and environments on live clusters."""

from __future__ import annotations

import click

from gpuctl.cli import (
    cluster_build,
    cluster_deploy,
    cluster_dev,
    cluster_discover,
    cluster_doctor,
    cluster_file,
    cluster_forward,
    cluster_render,
    cluster_shell,
    cluster_sync,
    cluster_test,
    cluster_train,
    cluster_vscode,
)
from gpuctl.cli.groups import Group

COMMANDS = (
    cluster_file.listing,
    cluster_file.show,
    cluster_file.validate,
    cluster_file.schema,
    cluster_file.migrate,
    cluster_discover.discover,
    cluster_render.render,
    cluster_build.build,
    *cluster_deploy.COMMANDS,
    cluster_sync.sync,
    cluster_train.train,
    cluster_test.test,
    cluster_shell.shell,
    cluster_forward.forward,
    cluster_vscode.vscode,
    cluster_dev.dev_session,
    cluster_doctor.doctor,
)


@click.group("cluster", cls=Group)
def group() -> None:
    """Multi-node ML environments on OpenShift and Kubernetes, from one file a cluster."""


for command in COMMANDS:
    group.add_command(command)
