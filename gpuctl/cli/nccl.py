"""nccl: parse, judge, run and report NCCL tests, and isolate the node that spoils them."""

from __future__ import annotations

import click

from gpuctl.cli import (
    nccl_baselines,
    nccl_calibrate,
    nccl_isolate,
    nccl_judge,
    nccl_kube,
    nccl_parse,
    nccl_preflight,
    nccl_report,
    nccl_run,
)
from gpuctl.cli.groups import Group

COMMANDS = (
    nccl_parse.parse,
    nccl_judge.judge,
    nccl_baselines.baselines,
    nccl_calibrate.calibrate,
    nccl_preflight.preflight,
    nccl_preflight.advise,
    nccl_run.command,
    nccl_isolate.command,
    nccl_report.report,
    nccl_report.history,
    nccl_kube.clean,
)


@click.group(cls=Group)
def nccl() -> None:
    """Validate the fabric with NCCL's own tests, and name the bad node with proof."""


for command in COMMANDS:
    nccl.add_command(command)
