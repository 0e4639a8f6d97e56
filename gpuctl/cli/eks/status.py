"""eks status and reap: clusters that exist, and the end of those whose time is over."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.eks.destroy import logs, place, region, snapshots, volumes
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.workflows.eks_pod_status import Pods
    from gpuctl.workflows.eks_status import EksStatus


@dataclass(frozen=True)
class StatusRequest:
    """A cluster by name, or its file. `pods`: Kubernetes is asked for GPU pods, in `namespace`."""

    cluster: str
    region: str
    aws_profile: str
    pods: bool
    namespace: str


@dataclass(frozen=True)
class ReapRequest:
    """`volumes`, `logs`: delete, keep, or "" for not chosen."""

    region: str
    aws_profile: str
    volumes: str
    logs: str
    snapshots: str
    yes: bool


@click.command()
@options.as_request(
    StatusRequest,
    click.argument("cluster", metavar="NAME|FILE"),
    region,
    options.aws_profile,
    click.option("--pods/--no-pods", default=True, show_default=True, help="Ask Kubernetes for GPU pods."),
    click.option(
        *("--namespace", "-n"),
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="Namespace of the GPU pods.  [default: default]",
    ),
)
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def status(request: StatusRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """Show a cluster: control plane, versions, node groups with their issues, addons, GPU pods, time to live and cost.

    The cost until now is at least that of what runs now, since its start. GPU pods are those that `eks pod` made.
    """
    from gpuctl.domain.report import Report
    from gpuctl.eks.status import plain
    from gpuctl.workflows import eks_plan, eks_pod_status, eks_status
    from gpuctl.workflows.eks_pod_status import Skipped

    check_folder(metrics)
    started = time.monotonic()
    name, where = place(request.cluster, request.region)
    with output.slow_notice("asking AWS"):
        read = eks_status.read_status(eks_plan.connect(where, request.aws_profile), name)
        pods: Pods = Skipped("--no-pods" if not request.pods else "the control plane does not run")
        if request.pods and read.is_reachable:
            pods = eks_pod_status.read(name, read.state.region, request.aws_profile, request.namespace)
    found = [*read.findings, *eks_pod_status.judge(name, pods, request.namespace)]
    details: dict[str, Any] = {
        "region": read.state.region,
        "objects": [plain(one) for one in read.state.objects],
        "costs": [{"part": one.part, "usd_hour": one.usd_hour, "usd": spent} for one, spent in read.costs],
        "usd_at_least": _sum([spent for _, spent in read.costs]),
        **eks_pod_status.details(pods),
    }
    seconds = round(time.monotonic() - started, 3)
    report = Report("eks status", {name: found}, details, strict=strict, seconds=seconds)
    publish(report, form, metrics, lambda: _show(read, found, pods))
    raise click.exceptions.Exit(report.exit_code)


def _show(read: EksStatus, found: Sequence[Finding], pods: Pods) -> None:
    from gpuctl.eks.status import summary
    from gpuctl.workflows.eks_pod_status import Skipped

    findings.show(found)
    if isinstance(pods, Skipped):
        click.echo(f"GPU pods: Kubernetes was not asked: {pods.why}")
    click.echo(f"objects: {summary(read.state)}")
    rows = ((one.part, _usd(one.usd_hour), _usd(spent), one.why) for one, spent in read.costs)
    output.table(("PART", "USD/HOUR", "USD SO FAR", "SOURCE"), rows)
    total = _sum([spent for _, spent in read.costs])
    click.echo(f"so far: {'UNKNOWN, as a price is not known' if total is None else f'at least {total:.2f} USD'}")


def _sum(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return round(math.fsum(known), 2) if len(known) == len(values) else None


def _usd(value: float | None) -> str:
    return "UNKNOWN" if value is None else f"{value:.2f}"


@click.command()
@options.as_request(
    ReapRequest,
    click.option("--region", metavar="REGION", default="", callback=options.not_empty, help="Only of this region."),
    options.aws_profile,
    volumes,
    logs,
    snapshots,
    click.option("--yes", "-y", is_flag=True, help="Remove them; without this option, only list them."),
)
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def reap(request: ReapRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """List the clusters that gpuctl made, in all regions; with --yes, destroy those whose time to live is over.

    For a scheduled pipeline. Clusters without a time to live, with deletion protection, or with parts that gpuctl did
    not make stay, and are named.
    """
    from gpuctl.domain.report import Report
    from gpuctl.eks.removal import Choice
    from gpuctl.eks.wait import Waiter
    from gpuctl.workflows import eks_plan, eks_status

    check_folder(metrics)
    started = time.monotonic()
    with output.slow_notice("asking AWS"):
        clusters = eks_status.living(eks_plan.connect(request.region, request.aws_profile), request.region)
    late, found = eks_status.preview(clusters, datetime.now(UTC))
    if request.yes and late:
        findings.show(found, err=True)
        waiter = Waiter(lambda line: click.echo(line, err=True))
        choice = Choice(request.volumes, request.logs, request.snapshots)
        ended = eks_status.reap(lambda where: eks_plan.connect(where, request.aws_profile), late, choice, waiter)
        found = [one for one in found if one.subject not in {each.subject for each in late}] + ended
    details = {"clusters": len(clusters), "late": len(late), "removed": bool(request.yes and late)}
    seconds = round(time.monotonic() - started, 3)
    report = Report("eks reap", {"clusters": list(found)}, details, strict=strict, seconds=seconds)
    publish(report, form, metrics, lambda: _show_reap(found, len(clusters), len(late), carried_out=request.yes))
    raise click.exceptions.Exit(report.exit_code)


def _show_reap(found: Any, count: int, late: int, *, carried_out: bool) -> None:
    findings.show(found)
    click.echo(f"{output.plural(count, 'cluster')}, {late} past their time to live")
    if late and not carried_out:
        click.echo("nothing was removed: add --yes to remove those")
