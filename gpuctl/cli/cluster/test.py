"""cluster test: the pods' equipment, and whether they reach each other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import on_cluster, which
from gpuctl.cli.cluster.train import python
from gpuctl.cli.shared import findings, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options

if TYPE_CHECKING:
    from gpuctl.cluster.selftest.flow import TestReport

HEAD = ("POD", "NODE", "", "GPUS", "DRIVER", "SHM", "RDMA", "MEMLOCK")


@click.command("test")
@which
@python
@report_options
def test(name: str, form: Form, metrics: Path | None, **params: Any) -> None:
    """Test the pods of an environment concurrently: GPUs and their health, shared memory, RDMA, DNS and ssh.

    Nothing is left in the pods. For NCCL bandwidth between them: `gpuctl nccl run --cluster NAME`.
    """
    from gpuctl.cluster.selftest import flow
    from gpuctl.domain.findings import ok
    from gpuctl.domain.report import Report

    check_folder(metrics)
    cluster, env = on_cluster(name, params)
    tested = flow.look(cluster, env, params["python"])
    rows = [{**asdict(row), "verdict": str(row.verdict)} for row in tested.rows]
    details = {"environment": env.name, "mode": env.mode, "pods": rows}
    # A pod without a finding passed.
    healthy = [ok("pod", row.pod, "healthy") for row in tested.rows if row.verdict == "OK"]
    report = Report("cluster test", {env.name: [*tested.findings, *healthy]}, details)
    publish(report, form, metrics, lambda: _show(tested))
    if form == "table" and not report.exit_code:
        click.echo(f"next: gpuctl nccl run --cluster {name}", err=True)
    raise click.exceptions.Exit(report.exit_code)


def _show(report: TestReport) -> None:
    cells = [(e.pod, e.node, e.verdict, e.gpus, e.driver, e.shm, e.rdma, e.memlock) for e in report.rows]
    output.table(HEAD, cells)
    findings.show(report.findings)
