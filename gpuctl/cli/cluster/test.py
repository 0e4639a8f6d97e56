"""cluster test: check the pods' GPUs, memory and network."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.cluster.train import python
from gpuctl.cli.shared import findings, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.cluster.selection import EnvironmentSelection

if TYPE_CHECKING:
    from gpuctl.cluster.selftest.flow import TestReport

HEAD = ("POD", "NODE", "", "GPUS", "DRIVER", "SHM", "RDMA", "MEMLOCK")


@click.command("test")
@selected
@python
@report_options
def test(request: EnvironmentSelection, python: str, form: Form, metrics: Path | None) -> None:
    """Test GPUs, shared memory, RDMA, DNS and ssh in all pods of an environment.

    Nothing is left in the pods. For NCCL bandwidth between them: `gpuctl nccl run --cluster NAME`.
    """
    from gpuctl.cluster.access import open_access
    from gpuctl.cluster.selftest import flow
    from gpuctl.domain.findings import ok
    from gpuctl.domain.report import Report

    check_folder(metrics)
    access = open_access(request)
    tested = flow.look(access.cluster, access.env, python)
    rows = [{**asdict(row), "verdict": str(row.verdict)} for row in tested.rows]
    details = {"environment": access.env.name, "mode": access.env.mode, "pods": rows}
    # A pod without a finding passed.
    healthy = [ok("pod", row.pod, "healthy") for row in tested.rows if row.verdict == "OK"]
    report = Report("cluster test", {access.env.name: [*tested.findings, *healthy]}, details)
    publish(report, form, metrics, lambda: _show(tested))
    if form == "table" and not report.exit_code:
        click.echo(f"next: gpuctl nccl run --cluster {request.name}", err=True)
    raise click.exceptions.Exit(report.exit_code)


def _show(report: TestReport) -> None:
    cells = [(e.pod, e.node, e.verdict, e.gpus, e.driver, e.shm, e.rdma, e.memlock) for e in report.rows]
    output.table(HEAD, cells)
    findings.show(report.findings)
