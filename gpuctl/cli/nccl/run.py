"""nccl run: run NCCL tests on hosts, on Slurm or in pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nccl import baselines, record_history, sweep_options, target_options
from gpuctl.cli.nccl.sweep_options import SweepRequest
from gpuctl.cli.shared import findings as findings_output
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import Sectioned
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.exit_codes import INTERRUPTED
from gpuctl.core.signals import ctrl_c
from gpuctl.nccl.plan_kinds import KINDS, Kind
from gpuctl.workflows.nccl_targets.model import TargetRequest

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.model import Launch, LaunchResult

QUIET_S = 5.0  # between two sizes of one launch that are reported


@dataclass(frozen=True)
class RunRequest:
    """Test to run: its kind, its sweep and its target; `instance` and `network` are the baseline it is judged by.

    `strict`: WARN is a problem, too.
    """

    kind: Kind
    split: bool
    instance: str | None
    network: str | None
    strict: bool
    sweep: SweepRequest
    target: TargetRequest


@click.command("run", cls=Sectioned)
@options.as_request(
    RunRequest,
    click.option(
        "--kind",
        "-k",
        type=click.Choice(KINDS),
        default="quick",
        show_default=True,
        help="The tests to run: see above.",
    ),
    click.option(
        "--split", is_flag=True, help="With pairs and single: one launch per round; it shows only the slowest group."
    ),
    click.option("--instance", metavar="NAME", help="Machine type, for baselines: p5.48xlarge, or your own name."),
    click.option(
        "--network",
        metavar="NAME",
        type=sweep_options.Network(),
        help="Network that NCCL should use: efa, ib, roce, socket.",
    ),
    baselines.strict,
    sweep_options.sweep_options,
    target_options.target_options,
)
@report_options
def command(request: RunRequest, form: Form, metrics: Path | None) -> None:
    """Run NCCL tests on hosts, on Slurm or in pods, and judge the results.

    Without a target option the tests run on the hosts of an inventory, started by Open MPI over ssh as the login user;
    hosts that only Ansible can reach are tested by the playbook nccl.yml, without progress per size. With --slurm
    they run as steps of a Slurm job, with --cluster in the pods of a `gpuctl cluster` environment, with --image in new
    pods on the nodes of a Kubernetes cluster.

    \b
    quick   one all_reduce over all nodes
    full    every collective over all nodes
    pairs   every pair of nodes, with the Ring algorithm; pairs without a common node run concurrently
    single  each node alone

    A hanging launch is stopped on every node; nodes where this cannot be confirmed are reported.
    """
    from gpuctl.domain.report import Report
    from gpuctl.nccl import flow, plan, serialize
    from gpuctl.nccl.baselines import load
    from gpuctl.nccl.context import RunContext
    from gpuctl.workflows import nccl_targets

    check_folder(metrics)
    kind, about = request.kind, RunContext(system=request.instance, network=request.network)
    sweep = request.sweep.sweep(nccl_targets.gpus_per_node(request.target))
    book = load.book()  # an unreadable file is reported before anything runs
    baselines.known_instance(request.instance, "run the tests", book)
    access = nccl_targets.node_access(request.target, sweep.gpus_per_node, target_options.notify)
    rounds = flow.planned(kind, access.nodes, plan.with_env(sweep, access.env), request.split)
    target_options.preflight(
        access, request.target, alone=kind == "single" and not request.split, together=kind in ("quick", "full")
    )
    results: list[LaunchResult] = []

    def keep_and_publish() -> list[Finding]:
        findings = flow.findings(kind, results, about, book, access.racks)
        record_history.record_results(kind, access.where, results, findings)
        details = {"launches": [serialize.launch_as_dict(end) for end in results]}
        code = flow.exit_code(results, findings, request.strict)
        report = Report("nccl run", {access.where: findings}, details, request.strict, code=code)
        publish(report, form, metrics, lambda: _show(results, findings))
        return findings

    with ctrl_c() as broken_off, record_history.save_partial_results(results, keep_and_publish):
        flow.run(access.runner, rounds, progress(), broken_off, results)
        interrupted = broken_off()
    findings = keep_and_publish()
    raise click.exceptions.Exit(INTERRUPTED if interrupted else flow.exit_code(results, findings, request.strict))


def progress() -> Callable[[Launch, str], None]:
    """Return a listener that prints plain lines to standard error, and only some of the sizes."""
    last: dict[str, float] = {}

    def listener(launch: Launch, message: str) -> None:
        name, now = f"{launch.sweep.collective} on {name_of(launch)}", time.monotonic()
        if message.endswith(" done") and now - last.get(name, 0.0) < QUIET_S:
            return
        last[name] = now
        click.echo(f"{name}: {message}", err=True)

    return listener


def name_of(launch: Launch) -> str:
    """Label of a launch: its nodes, and the adapter it is restricted to."""
    return output.names(launch.nodes, 2) + (f" on {launch.rail}" if launch.rail else "")


def _show(results: Sequence[LaunchResult], findings: Sequence[Finding]) -> None:
    from gpuctl.nccl.bandwidth import speed

    rows = [
        (name_of(e.launch), e.launch.sweep.collective, e.run.outcome, _gbs(speed(e.run)), f"{e.seconds:.0f}", _why(e))
        for e in results
    ]
    output.table(("NODES", "TEST", "OUTCOME", "MEDIAN GB/S", "SECONDS", "WHY"), rows)
    findings_output.show(findings)


def _gbs(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _why(end: LaunchResult) -> str:
    lost = f"cannot confirm that nothing is left on {output.names(end.lost)}" if end.lost else ""
    return "; ".join(text for text in (end.run.cause, lost) if text)
