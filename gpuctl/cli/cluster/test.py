"""cluster test: the pods' equipment, and whether they reach each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster import deploy_report as show
from gpuctl.cli.cluster.environment_options import on_cluster, which
from gpuctl.cli.cluster.train import python
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output

if TYPE_CHECKING:
    from gpuctl.cluster.selftest.flow import TestReport

PROBLEMS = 1
HEAD = ("POD", "NODE", "", "GPUS", "DRIVER", "SHM", "RDMA", "MEMLOCK")


@click.command("test")
@which
@python
@options.output
def test(name: str, form: Output, **params: Any) -> None:
    """Test the pods of an environment concurrently: GPUs and their health, shared memory, RDMA, DNS and ssh.

    Nothing is left in the pods. For NCCL bandwidth between them: `gpuctl nccl run --cluster NAME`.
    """
    from gpuctl.cluster.selftest import flow

    cluster, env = on_cluster(name, params)
    report = flow.look(cluster, env, params["python"])
    _show(report, form)
    bad = [finding for finding in report.findings if finding.verdict in ("FAIL", "UNKNOWN")]
    if form == "table" and not bad:
        click.echo(f"next: gpuctl nccl run --cluster {name}", err=True)
    raise click.exceptions.Exit(PROBLEMS if bad else 0)


def _show(report: TestReport, form: Output) -> None:
    from gpuctl.domain.findings import group_by_subject

    if form != "table":
        rows = [{**asdict(row), "verdict": str(row.verdict)} for row in report.rows]
        summary = {"environment": report.env.name, "mode": report.env.mode, "pods": rows}
        output.data({**summary, "findings": [finding.as_dict() for finding in report.findings]}, form)
        return
    cells = [(e.pod, e.node, e.verdict, e.gpus, e.driver, e.shm, e.rdma, e.memlock) for e in report.rows]
    output.table(HEAD, cells)
    show.findings(group_by_subject(report.findings))
