"""kube pods: pods of a context with their GPUs, and why some do not run; one pod with its events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.kube.pod import scope
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.kube.pod import Scope
    from gpuctl.kube.pod_list import PodDetail
    from gpuctl.kube.pod_rows import PodRow

HEAD = ("NAMESPACE", "POD", "STATUS", "RESTARTS", "GPUS", "NODE", "AGE", "WHY")


@dataclass(frozen=True)
class PodsRequest:
    """Pods to show: one by its name, "" for all; of a namespace, "" for that of the context, or of all."""

    name: str
    all_namespaces: bool
    context: str
    namespace: str

    @property
    def scope(self) -> Scope:
        from gpuctl.kube.pod import Scope

        return Scope(self.context, self.namespace, self.all_namespaces)


@click.command()
@click.argument("name", metavar="[POD]", default="")
@options.as_request(
    PodsRequest,
    click.option("--all-namespaces", "-A", is_flag=True, help="Pods of all namespaces."),
    scope,
)
@report_options
def pods(request: PodsRequest, form: Form, metrics: Path | None) -> None:
    """Show pods with their GPUs, and why some do not run; or POD with its containers and events.

    The worst come first. Exit code 1 for FAIL and UNKNOWN.
    """
    from gpuctl.domain.findings import ok
    from gpuctl.domain.report import Report
    from gpuctl.kube.pod_list import PodReader

    check(request)
    check_folder(metrics)
    reader = PodReader(request.scope)
    target = reader.context if request.all_namespaces else f"{reader.context}/{reader.namespace}"
    if request.name:
        detail = reader.detail(request.name)
        data = {"pods": [detail.row.as_dict()], "facts": list(detail.facts), "events": list(detail.events)}
        report = Report("kube pods", {target: detail.findings}, data)
        publish(report, form, metrics, lambda: _echo(detail_lines(detail)))
    else:
        rows = reader.list_all() if request.all_namespaces else reader.list_namespace()
        data = {"pods": [row.as_dict() for row in rows]}
        results = [one for row in rows for one in row.findings] or [ok("pods", "", "no pod exists")]
        report = Report("kube pods", {target: results}, data)
        publish(report, form, metrics, lambda: _table(rows))
    raise click.exceptions.Exit(report.exit_code)


def check(request: PodsRequest) -> None:
    """Refuse options that exclude each other."""
    if request.all_namespaces and request.namespace:
        raise InvalidInput("choose the pods", "--all-namespaces cannot be combined with --namespace", "leave one out")
    if request.all_namespaces and request.name:
        raise InvalidInput("choose the pods", "a name is one of a namespace", "add --namespace NAME in place of -A")


def cells(rows: Sequence[PodRow]) -> Iterator[tuple[object, ...]]:
    """Cells of the table, a row for each pod."""
    from gpuctl.cli.nodes.draw import duration

    for row in rows:
        age = "?" if row.age_s is None else duration(row.age_s)
        gpus = row.gpus or "-"
        yield row.namespace, row.name, row.status, row.restarts, gpus, row.node or "-", age, row.why


def detail_lines(detail: PodDetail) -> Iterator[str]:
    """Lines of a pod in full: findings, containers, events."""
    yield from findings.lines(detail.findings)
    yield ""
    yield from detail.facts
    yield ""
    yield "events:"
    yield from (f"  {line}" for line in detail.events)


def _echo(lines: Iterator[str]) -> None:
    for line in lines:
        click.echo(line)


def _table(rows: Sequence[PodRow]) -> None:
    from gpuctl.kube.pod_rows import summary

    output.table(HEAD, cells(rows))
    click.echo()
    click.echo(summary(rows))
