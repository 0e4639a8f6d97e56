"""eks destroy: remove a cluster completely."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.eks.removal import Row

region = click.option(
    "--region",
    metavar="REGION",
    default="",
    callback=options.not_empty,
    help="Region of the cluster.  [default: that of its file, else of the AWS configuration]",
)


def _delete_or_keep(name: str, text: str) -> Callable[[options.Command], options.Command]:
    """Option for objects that outlive a cluster; "" if nothing was chosen."""
    choice = click.Choice(["delete", "keep", ""])
    return click.option(name, type=choice, default="", metavar="delete|keep", help=text)


volumes = _delete_or_keep(
    "--volumes", "Volumes of Kubernetes' claims, which outlive the cluster and cost. Needed if there are any."
)
logs = _delete_or_keep(
    "--logs", "Log groups of EKS and Container Insights, which outlive the cluster and cost.  [default: keep]"
)
snapshots = _delete_or_keep(
    "--snapshots", "Snapshots of these volumes, which outlive the cluster and cost. Needed if there are any."
)


@dataclass(frozen=True)
class DestroyRequest:
    """`volumes`, `logs`, `snapshots`: delete, keep, or "" for not chosen. `foreign`: the name again, for what others
    made."""

    cluster: str
    region: str
    aws_profile: str
    volumes: str
    logs: str
    snapshots: str
    foreign: str
    yes: bool


@click.command()
@options.as_request(
    DestroyRequest,
    click.argument("cluster", metavar="NAME|FILE"),
    region,
    options.aws_profile,
    volumes,
    logs,
    snapshots,
    click.option(
        "--foreign",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="The cluster's name again: also remove what gpuctl did not make, such as node groups of others.",
    ),
    click.option("--yes", "-y", is_flag=True, help="Remove it; without this option, only list what would go."),
)
@report_options
def destroy(request: DestroyRequest, form: Form, metrics: Path | None) -> None:
    """List what goes and what stays; with --yes, remove the cluster in the order that AWS lets go.

    Can be repeated after any interruption. Refuses a cluster with deletion protection. Ends with a search by tag and
    owner: exit code 1 if anything is left.
    """
    from gpuctl.domain.findings import Verdict
    from gpuctl.domain.report import Report
    from gpuctl.eks.removal import Choice
    from gpuctl.eks.wait import Waiter
    from gpuctl.workflows import eks_destroy, eks_plan

    check_folder(metrics)
    started = time.monotonic()
    name, where = place(request.cluster, request.region)
    aws = eks_plan.connect(where, request.aws_profile)
    choice = Choice(request.volumes, request.logs, request.snapshots)
    with output.slow_notice("asking AWS"):
        state = eks_destroy.known(aws, name)
        around = eks_destroy.around(aws, state)
    rows, found = eks_destroy.preview(state, around, choice)
    _show_rows(rows, err=request.yes)
    refused = any(one.verdict is Verdict.FAIL for one in found)
    results = found
    if request.yes and not refused:
        _confirm_foreign([row for row in rows if row.is_foreign], name, request.foreign)
        findings.show(found, err=True)
        results = eks_destroy.run(aws, state, around, choice, Waiter(lambda line: click.echo(line, err=True)))
    details = {"region": aws.region, "removed": request.yes and not refused, "objects": [_plain(row) for row in rows]}
    seconds = round(time.monotonic() - started, 3)
    report = Report("eks destroy", {name: list(results)}, details, seconds=seconds)
    publish(report, form, metrics, lambda: _show(results, request.yes))
    raise click.exceptions.Exit(report.exit_code)


def place(cluster: str, region_option: str) -> tuple[str, str]:
    """Name and region: of a cluster file, if one has this name; else the name itself."""
    from gpuctl.eks import cluster_file

    try:
        path = cluster_file.find(cluster)
    except InvalidInput:
        if "/" in cluster or cluster.endswith(cluster_file.ENDINGS):
            raise
        return cluster, region_option
    read = cluster_file.load(path)
    return read.name, region_option or read.region


def _confirm_foreign(foreign: Sequence[Row], name: str, typed: str) -> None:
    if not foreign:
        return
    listed = output.names([str(row.item) for row in foreign])
    if not typed and sys.stdin.isatty():
        typed = click.prompt(f"gpuctl did not make {listed}. Type the cluster's name to remove them", err=True)
    if typed != name:
        hint = f"add `--foreign {name}` to remove them, too"
        raise InvalidInput(f"destroy {name}", f"gpuctl did not make {listed}", hint)


def _show_rows(rows: Sequence[Row], err: bool) -> None:
    for row in rows:
        click.echo(str(row), err=err)


def _show(results: Sequence[Finding], carried_out: bool) -> None:
    findings.show(results)
    if not carried_out:
        click.echo("nothing was removed: add --yes to remove what goes")


def _plain(row: Row) -> dict[str, object]:
    return {"kind": str(row.item.kind), "name": row.item.name, "goes": row.goes, "ours": row.item.ours, "why": row.why}
