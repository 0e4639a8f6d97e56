"""nccl: parse, judge, run and report NCCL tests, and isolate faulty nodes."""

from __future__ import annotations

import click

from gpuctl.cli.nccl import baselines, calibrate, clean, isolate, judge, parse, preflight, report, run
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
    clean.clean,
)


@click.group(cls=Group)
def nccl() -> None:
    """Validate the fabric with nccl-tests, and find faulty nodes with proof."""


for command in COMMANDS:
    nccl.add_command(command)
