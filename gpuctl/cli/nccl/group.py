"""nccl: parse, judge, run and report NCCL tests, and isolate the node that spoils them."""

from __future__ import annotations

import click

from gpuctl.cli.nccl import baselines, calibrate, isolate, judge, parse, preflight, report, run
from gpuctl.cli.nccl.targets import pods
from gpuctl.cli.shared.click_groups import Group

COMMANDS = (
    parse.parse,
    judge.judge,
    baselines.baselines,
    calibrate.calibrate,
    preflight.preflight,
    preflight.advise,
    run.command,
    isolate.command,
    report.report,
    report.history,
    pods.clean,
)


@click.group(cls=Group)
def nccl() -> None:
    """Validate the fabric with nccl-tests, and identify faulty nodes with proof."""


for command in COMMANDS:
    nccl.add_command(command)
