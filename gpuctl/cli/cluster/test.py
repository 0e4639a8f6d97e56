"""cluster test: what the pods of an environment have, and whether they reach each other."""

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
    from gpuctl.cluster.selftest.flow import Tested

PROBLEMS = 1
HEAD = ("POD", "NODE", "", "GPUS", "DRIVER", "SHM", "RDMA", "MEMLOCK")


@click.command("test")
@which
@python
@options.output
def test(name: str, form: Output, **given: Any) -> None:
    """Test the pods of an environment, all at the same time: GPUs and their health, shared memory, RDMA, DNS and ssh.

    Nothing is left in the pods. How fast NCCL is between them: `gpuctl nccl run --cluster NAME`.
    """
    from gpuctl.cluster.selftest import flow

    cluster, env = on_cluster(name, given)
    found = flow.look(cluster, env, given["python"])
    _show(found, form)
    bad = [each for each in found.findings if each.verdict in ("FAIL", "UNKNOWN")]
    if form == "table" and not bad:
        click.echo(f"next: gpuctl nccl run --cluster {name}", err=True)
    raise click.exceptions.Exit(PROBLEMS if bad else 0)


def _show(found: Tested, form: Output) -> None:
    from gpuctl.cluster.deploy.model import findings_as_dicts
    from gpuctl.cluster.probe import judge

    if form != "table":
        rows = [{**asdict(each), "verdict": str(each.verdict)} for each in found.rows]
        told = {"environment": found.env.name, "mode": found.env.mode, "pods": rows}
        output.data({**told, "findings": findings_as_dicts(found.findings)}, form)
        return
    cells = [(e.pod, e.node, e.verdict, e.gpus, e.driver, e.shm, e.rdma, e.memlock) for e in found.rows]
    output.table(HEAD, cells)
    show.findings(judge.grouped(found.findings))
