"""cluster test: check the pods' GPUs, memory and network, and measure the bandwidth between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import selection_options
from gpuctl.cli.cluster.train import python
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from gpuctl.cluster.access import PodAccess
    from gpuctl.cluster.selftest.flow import TestReport
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.pair_table import Comparison

HEAD = ("POD", "NODE", "", "GPUS", "DRIVER", "SHM", "RDMA", "MEMLOCK")


@dataclass(frozen=True)
class TestRequest:
    """`bandwidth`: also measure between the pods; `new_baseline`: keep this measurement as the baseline."""

    selection: EnvironmentSelection
    python: str = "python3"
    bandwidth: bool = False
    new_baseline: bool = False


@dataclass(frozen=True)
class Bandwidth:
    """Result of a measurement between the pods. `baseline_of`: when the baseline was measured, "" if there is none."""

    findings: Sequence[Finding]
    rows: Sequence[Comparison]
    baseline_of: str
    saved: str
    interrupted: bool
    details: dict[str, Any]


@click.command("test")
@options.as_request(
    TestRequest,
    selection_options,
    python,
    click.option(
        "--bandwidth",
        is_flag=True,
        help="Also measure NCCL bandwidth between all pairs of pods, and compare it with the environment's baseline.",
    ),
    click.option("--new-baseline", is_flag=True, help="With --bandwidth: replace the baseline by this measurement."),
)
@report_options
def test(request: TestRequest, form: Form, metrics: Path | None) -> None:
    """Test GPUs, shared memory, RDMA, DNS and ssh in all pods of an environment.

    Nothing is left in the pods. With --bandwidth every pair of pods runs NCCL's all_reduce, if no pod failed and no pod
    is training; the image needs nccl-tests and Open MPI. The first complete measurement becomes the environment's
    baseline, and later ones are compared with it: WARN from 5 % below it, FAIL from 13 %.
    """
    if request.new_baseline and not request.bandwidth:
        raise click.UsageError("--new-baseline goes with --bandwidth")
    if request.bandwidth and request.selection.single:
        raise click.UsageError("--bandwidth measures between pods, and --single has only one")
    from gpuctl.cluster.access import open_access
    from gpuctl.cluster.selftest import flow
    from gpuctl.domain.findings import Verdict, ok
    from gpuctl.domain.report import Report

    check_folder(metrics)
    access = open_access(request.selection)
    tested = flow.run_test(access.cluster, access.env, request.python)
    rows = [{**asdict(row), "verdict": str(row.verdict)} for row in tested.rows]
    details: dict[str, Any] = {"environment": access.env.name, "mode": access.env.mode, "pods": rows}
    # A pod without a finding passed.
    results = [*tested.findings, *(ok("pod", row.pod, "healthy") for row in tested.rows if row.verdict == "OK")]
    has_failed = any(finding.verdict is Verdict.FAIL for finding in tested.findings)
    measured = None if has_failed or not request.bandwidth else _measure(request, access, tested.env.mode)
    if measured:
        results += measured.findings
        details["bandwidth"] = measured.details
    code = INTERRUPTED if measured and measured.interrupted else None
    report = Report("cluster test", {access.env.name: results}, details, code=code)
    publish(report, form, metrics, lambda: _show(tested, measured))
    if request.bandwidth and has_failed:
        click.echo("the bandwidth was not measured: fix the failed checks first", err=True)
    if measured and measured.saved:
        click.echo(f"baseline: saved {measured.saved}", err=True)
    if form == "table" and not report.exit_code and not measured:
        click.echo(f"next: gpuctl cluster test {request.selection.name} --bandwidth", err=True)
    raise click.exceptions.Exit(report.exit_code)


def _measure(request: TestRequest, access: PodAccess, mode: str) -> Bandwidth:
    """Measure between the pods; what was measured before an interruption is shown, and not kept."""
    from gpuctl.cli.nccl import record_history, target_options
    from gpuctl.cli.nccl.run import progress
    from gpuctl.core.signals import ctrl_c
    from gpuctl.nccl import pair_table
    from gpuctl.workflows import environment_bandwidth, nccl_targets
    from gpuctl.workflows.nccl_targets.model import EnvironmentOptions, PodOptions, TargetRequest

    selection = request.selection
    target = TargetRequest(
        environment=EnvironmentOptions(selection.name, selection.environment),
        pods=PodOptions(context=selection.context),
    )
    nodes = nccl_targets.node_access(target, access.env.cluster.gpus.per_node, target_options.notify)
    measurement = environment_bandwidth.prepare(access, mode, nodes.nodes)
    target_options.preflight(nodes, target)
    with ctrl_c() as broken_off:
        environment_bandwidth.run(measurement, nodes, progress(), broken_off)
        interrupted = broken_off()
    results = environment_bandwidth.judge(measurement, nodes)
    record_history.record_results(measurement.kind, nodes.where, measurement.results, results)
    saved = (
        ""
        if interrupted
        else environment_bandwidth.save_baseline(access, measurement, results, overwrite=request.new_baseline)
    )
    table, baseline = measurement.table, measurement.baseline
    rows = pair_table.rows(table, baseline)
    details = {
        "measured_at": table.measured_at,
        "baseline_of": baseline.measured_at if baseline else None,
        "pairs": [row.as_dict() for row in rows],
    }
    return Bandwidth(results, rows, baseline.measured_at if baseline else "", saved, interrupted, details)


def _show(report: TestReport, measured: Bandwidth | None) -> None:
    cells = [(e.pod, e.node, e.verdict, e.gpus, e.driver, e.shm, e.rdma, e.memlock) for e in report.rows]
    output.table(HEAD, cells)
    if measured:
        title = f"BASELINE {measured.baseline_of[:10]}" if measured.baseline_of else "BASELINE"
        output.table(("NODES", "", "GB/S", title, "CHANGE"), [_cells(row) for row in measured.rows])
    findings.show([*report.findings, *(measured.findings if measured else ())])


def _cells(row: Comparison) -> tuple[str, ...]:
    change = "-" if row.change is None else f"{row.change:+.1%}"
    return " and ".join(row.nodes), str(row.verdict), _gbs(row.busbw_gbs), _gbs(row.baseline_gbs), change


def _gbs(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
