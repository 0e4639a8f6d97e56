"""nccl run: run NCCL tests on hosts, on Slurm or in pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.nccl import baselines, record_history, sweep_options
from gpuctl.cli.nccl.targets import select
from gpuctl.cli.shared import findings as findings_output
from gpuctl.cli.shared import output
from gpuctl.cli.shared.option_sections import Sectioned
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.signals import ctrl_c

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.nccl.model import Launch, LaunchResult

KINDS = ("quick", "full", "pairs", "single")
QUIET_S = 5.0  # of one launch, no more than one size in so long a time is told


@click.command("run", cls=Sectioned)
@click.option("--kind", "-k", type=click.Choice(KINDS), default="quick", show_default=True, help="See above.")
@click.option("--split", is_flag=True, help="Pairs, single: one launch a round, which tells only the slowest group.")
@click.option("--instance", metavar="NAME", help="The machine type, for baselines: p5.48xlarge, or your own name.")
@click.option(
    "--network", metavar="NAME", type=sweep_options.Network(), help="What NCCL should use: efa, ib, roce, socket."
)
@sweep_options.sweep_options
@select.way_options
@report_options
def command(
    kind: Any,
    split: bool,
    instance: str | None,
    network: str | None,
    form: Form,
    metrics: Path | None,
    **params: Any,
) -> None:
    """Run NCCL tests on the nodes of an inventory, over ssh and Open MPI, as the user that ssh logs in as.

    Nodes that only Ansible reaches are reached by its playbook nccl.yml, which tells of no sizes.
    With --slurm they run as steps of a Slurm job, with --cluster in the pods of an environment of `gpuctl cluster`,
    with --image in pods of their own on the nodes of a Kubernetes cluster.

    \b
    quick   one all_reduce over all nodes
    full    every collective over all nodes
    pairs   every pair of nodes, in rounds of as many pairs as there is room for, with the Ring algorithm
    single  each node alone

    A run that hangs is ended on every node, and said to be gone only where that was seen.
    """
    from gpuctl.domain.report import Report
    from gpuctl.nccl import flow, plan, serialize
    from gpuctl.nccl.baselines import load
    from gpuctl.nccl.context import RunContext

    check_folder(metrics)
    params = select.complete(params)
    sweep = sweep_options.sweep_of(**params)
    book = load.book()  # a file that cannot be read is told before anything runs
    baselines.known_instance(instance, "run the tests", book)
    access = select.node_access(**params)
    rounds = flow.planned(kind, access.nodes, plan.with_env(sweep, access.env), split)
    select.preflight(access, alone=kind == "single" and not split, together=kind in ("quick", "full"), **params)
    results: list[LaunchResult] = []

    def kept() -> list[Finding]:
        findings = flow.findings(kind, results, RunContext(system=instance, network=network), book, access.racks)
        record_history.keep(kind, access.where, results, findings)
        details = {"launches": [serialize.launch_as_dict(end) for end in results]}
        report = Report("nccl run", {access.where: findings}, details, code=flow.exit_code(results, findings))
        publish(report, form, metrics, lambda: _show(results, findings))
        return findings

    with ctrl_c() as broken_off, record_history.save_partial_results(results, kept):
        flow.run(access.runner, rounds, progress(), broken_off, results)
        interrupted = broken_off()
    findings = kept()
    raise click.exceptions.Exit(INTERRUPTED if interrupted else flow.exit_code(results, findings))


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
    lost = f"cannot say that nothing is left on {output.names(end.lost)}" if end.lost else ""
    return "; ".join(text for text in (end.run.cause, lost) if text)
