"""cluster: cluster files, the Kubernetes objects rendered from them, and environments on live clusters."""

from __future__ import annotations

import click

from gpuctl.cli.cluster import (
    build,
    deploy,
    dev,
    discover,
    doctor,
    editors,
    file,
    forward,
    logs,
    render,
    shell,
    sync,
    test,
    train,
)
from gpuctl.cli.shared.click_groups import Group

COMMANDS = (
    file.listing,
    file.show,
    file.validate,
    file.schema,
    file.migrate,
    discover.discover,
    render.render,
    build.build,
    *deploy.COMMANDS,
    sync.sync,
    train.train,
    test.test,
    shell.shell,
    forward.forward,
    editors.vscode,
    editors.jupyter,
    logs.logs,
    dev.dev_session,
    doctor.doctor,
)


@click.group("cluster", cls=Group)
def group() -> None:
    """Multi-node ML environments on OpenShift and Kubernetes, from one file per cluster."""


for command in COMMANDS:
    group.add_command(command)
