"""nodes: who is using which GPUs of a fleet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nodes.reading import NodesRequest, Source, check, content_of, source
from gpuctl.cli.nodes.slurm_options import slurm
from gpuctl.cli.shared import findings, options
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.exit_codes import worst

if TYPE_CHECKING:
    from gpuctl.domain.report import Report
    from gpuctl.nodes.model import Node
    from gpuctl.nodes.summary import Group

File = click.Path(dir_okay=False, path_type=Path)
SORTS = ("inventory", "name", "idle", "use", "memory", "util", "since", "who")


@click.command("show", hidden=True)
@options.as_request(
    NodesRequest,
    options.inventory,
    options.limit,
    options.other_context("Kubernetes context: show which pods have GPUs, from the API."),
    options.node_probe("With --context: also query each GPU node, by a short-lived privileged pod, which is removed."),
    slurm,
    click.option(
        "--from",
        "sources",
        metavar="FILE",
        type=File,
        multiple=True,
        help="Use recorded facts, and query no node; repeatable.",
    ),
    click.argument("files", nargs=-1, metavar="[FILE]...", type=File),
    click.option("--save", metavar="FILE", type=File, help="Save the facts to this file, without secrets."),
    click.option(
        "--type",
        metavar="T",
        default="",
        callback=options.not_empty,
        help="Only nodes of this instance type or family (p5), or with GPUs of this model (H100).",
    ),
    click.option(
        "--sort",
        type=click.Choice(SORTS),
        default="inventory",
        show_default=True,
        help="Order of the nodes: most idle GPUs first, oldest process first, …",
    ),
    click.option("--mine", is_flag=True, help="Only your own processes: those of your login on the node, or here."),
    click.option(
        "--idle",
        type=options.Duration(),
        metavar="TIME",
        help="Only GPUs idle in every reading of the last TIME, such as 1h.",
    ),
    click.option("--watch", is_flag=True, help="Query and draw again until Ctrl-C."),
    click.option(
        "--every", type=options.Finite(1, 86400), default=5, show_default=True, help="Seconds between two readings."
    ),
    options.visit("node", 60),
    report_options,
)
def nodes(request: NodesRequest, form: Form, metrics: Path | None) -> None:
    """Show who is using which GPUs and since when, and which GPUs are free; all nodes are queried in parallel.

    Owners are persons, Slurm jobs, pods, containers and services. Facts that cannot be read are UNKNOWN, never idle.
    Exit code 1 for FAIL and UNKNOWN, 3 if a node was not reached.
    """
    check(request, form)
    check_folder(metrics)
    read = source(request)
    if request.watch:
        _watch(request, read, form, metrics)
    raise click.exceptions.Exit(_show(request, *read(), form, metrics))


def _watch(request: NodesRequest, read: Source, form: Form, metrics: Path | None) -> None:
    """Draw until Ctrl-C."""
    while True:
        started = time.monotonic()
        nodes, notes = read()
        click.clear()  # does nothing unless a terminal shows it
        click.echo(time.strftime("%H:%M:%S"))
        _show(request, nodes, notes, form, metrics)
        time.sleep(max(0.0, started + request.every - time.monotonic()))


def _show(request: NodesRequest, every: Sequence[Node], notes: Sequence[str], form: Form, metrics: Path | None) -> int:
    """Print the report, and return its exit code."""
    from gpuctl.domain.findings import Verdict
    from gpuctl.domain.report import Report
    from gpuctl.nodes import serialize

    content = content_of(request, every)
    typed, shown, groups, results = content.typed, content.shown, content.groups, content.findings
    problems = any(one.verdict in (Verdict.FAIL, Verdict.UNKNOWN) for one in results)
    code = worst([int(problems), 0 if all(node.reached for node in typed) else 3])
    details = {
        "nodes": [serialize.as_dict(node) for node in shown] if form != "table" else [],
        "summary": [serialize.group_as_dict(group) for group in groups],
    }
    target = (
        str(request.recorded[0])
        if request.recorded
        else request.context or request.inventory or ("slurm" if request.slurm else "localhost")
    )
    report = Report("nodes", {target: results}, details, code=code)
    publish(report, form, metrics, lambda: _table(request, shown, groups, report))
    for note in [*notes, *content.notes]:
        click.echo(f"note: {note}", err=True)
    return code


def _table(request: NodesRequest, nodes: Sequence[Node], groups: Sequence[Group], report: Report) -> None:
    from gpuctl.cli.nodes import draw
    from gpuctl.domain.findings import Verdict

    click.echo("\n".join(draw.lines(nodes, groups)))
    wrong = [finding for finding in report.findings if finding.verdict is not Verdict.OK]
    if wrong:
        click.echo()
        findings.show(wrong)
