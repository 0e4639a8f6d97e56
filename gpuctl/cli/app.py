"""The `gpuctl` command with its groups; a command imports what it needs when it runs, so that `--help` is fast."""

from __future__ import annotations

import signal
from types import FrameType

import click

from gpuctl.cli import audit, bootstrap, explain, report, schema, self_update
from gpuctl.cli.cluster import group as cluster
from gpuctl.cli.dash import command as dash
from gpuctl.cli.eks import group as eks
from gpuctl.cli.errors import guarded
from gpuctl.cli.gpu_node import group as gpu_node
from gpuctl.cli.hosts import profile, runs, tune
from gpuctl.cli.incident import group as incident
from gpuctl.cli.kube import group as kube
from gpuctl.cli.nccl import group as nccl
from gpuctl.cli.nodes import group as nodes
from gpuctl.cli.reservations import group as reservations
from gpuctl.cli.reservations import reserve
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.subnets import group as subnets
from gpuctl.cli.tmux import versions as tmux


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="gpuctl", message="gpuctl %(version)s")
def app() -> None:
    """Tune GPU hosts, find bad nodes, and run training environments on Kubernetes."""


COMMANDS = (
    bootstrap.group,
    tune.tune_nodes,
    tune.drift,
    tune.rollback,
    gpu_node.group,
    profile.group,
    runs.group,
    tmux.group,
    kube.group,
    dash.dash,
    nodes.nodes,
    reserve.reserve,
    reservations.group,
    nccl.nccl,
    cluster.group,
    subnets.subnets,
    eks.eks,
    audit.audit,
    report.report,
    incident.incident,
    explain.explain,
    schema.schema,
    self_update.self_update,
)
for command in COMMANDS:
    app.add_command(command)


def main() -> None:
    """Run the command line; ends the process."""
    # SIGTERM (a cancelled job) and SIGHUP (a closed terminal) act like Ctrl-C, so that nothing is left running.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _as_ctrl_c)
    guarded(app)


def _as_ctrl_c(_: int, frame: FrameType | None) -> None:
    """Act like Ctrl-C, even if SIGINT itself is ignored, as in a script's background job."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
