"""nccl: parse, judge, run and report NCCL tests, and isolate faulty nodes."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group

MEMBERS = {
    "parse": "gpuctl.cli.nccl.parse:parse",
    "judge": "gpuctl.cli.nccl.judge:judge",
    "baselines": "gpuctl.cli.nccl.baselines:baselines",
    "calibrate": "gpuctl.cli.nccl.calibrate:calibrate",
    "preflight": "gpuctl.cli.nccl.preflight:preflight",
    "advise": "gpuctl.cli.nccl.preflight:advise",
    "run": "gpuctl.cli.nccl.run:command",
    "isolate": "gpuctl.cli.nccl.isolate:command",
    "report": "gpuctl.cli.nccl.report:report",
    "history": "gpuctl.cli.nccl.report:history",
    "clean": "gpuctl.cli.nccl.clean:clean",
}


@click.group(cls=Group, members=MEMBERS)
def nccl() -> None:
    """Validate the fabric with nccl-tests, and find faulty nodes with proof."""
