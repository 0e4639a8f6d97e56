"""The `gpuctl` command with its groups; a command imports what it needs when it runs, so that `--help` is fast."""

from __future__ import annotations

import signal
from types import FrameType

import click

from gpuctl.cli.errors import guarded
from gpuctl.cli.shared.click_groups import Group

# Where each command is: a start that imports the others, too, takes half as long again.
MEMBERS = {
    name: f"gpuctl.cli.{place}"
    for name, place in {
        "audit": "audit:audit",
        "bootstrap": "bootstrap:group",
        "cluster": "cluster.group:group",
        "dash": "dash.command:dash",
        "drift": "hosts.tune:drift",
        "eks": "eks.group:eks",
        "explain": "explain:explain",
        "gpu-node": "gpu_node.group:group",
        "incident": "incident.group:incident",
        "kube": "kube.group:group",
        "nccl": "nccl.group:nccl",
        "nodes": "nodes.group:nodes",
        "profile": "hosts.profile:group",
        "report": "report:report",
        "reservations": "reservations.group:group",
        "reserve": "reservations.reserve:reserve",
        "rollback": "hosts.tune:rollback",
        "runs": "hosts.runs:group",
        "schema": "schema:schema",
        "self-update": "self_update:self_update",
        "subnets": "subnets.group:subnets",
        "tmux": "tmux.versions:group",
        "tune-nodes": "hosts.tune:tune_nodes",
    }.items()
}


@click.group(
    cls=Group,
    members=MEMBERS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="gpuctl", message="gpuctl %(version)s")
def app() -> None:
    """Tune GPU hosts, find bad nodes, and run training environments on Kubernetes."""


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
