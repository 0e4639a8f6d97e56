"""eks cost: cost of the clusters that gpuctl made, by cluster and by owner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.eks.spending import Spending, Sum


@dataclass(frozen=True)
class CostRequest:
    """A cluster by name and an owner by the tag `owner`, "" for all. `region`: "" for all."""

    cluster: str
    owner: str
    region: str
    aws_profile: str


@click.command()
@options.as_request(
    CostRequest,
    click.option("--cluster", metavar="NAME", default="", callback=options.not_empty, help="Only this cluster."),
    click.option(
        "--owner", metavar="NAME", default="", callback=options.not_empty, help="Only clusters with this tag `owner`."
    ),
    click.option("--region", metavar="REGION", default="", callback=options.not_empty, help="Only of this region."),
    options.aws_profile,
)
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def cost(request: CostRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """Show the cost of clusters that gpuctl made: an hour, until now, and until the end of their time to live.

    Counted is what runs now, since its start: the cost until now is at least that. Parts without a known price are
    named, and make the other sums lower bounds, too (WARN). Exit code 1 if a cluster cannot be read, or is
    past its time to live.
    """
    from gpuctl.domain.report import Report
    from gpuctl.eks import spending
    from gpuctl.workflows import eks_cost, eks_plan, eks_prices, eks_status

    check_folder(metrics)
    started, now = time.monotonic(), datetime.now(UTC)
    with output.slow_notice("asking AWS"):
        clusters = eks_status.living(eks_plan.connect(request.region, request.aws_profile), request.region)
        several = eks_cost.chosen(clusters, request.cluster, request.owner)
        costs = eks_cost.read(lambda region: eks_plan.connect(region, request.aws_profile), several, now)
    owners = spending.by_owner(costs, now)
    details = {
        "clusters": [_plain(one, spending.total(one, now)) for one in costs],
        "owners": {name: _amounts(one) for name, one in owners.items()},
    }
    results = spending.judge(costs, now)
    for each in sorted({one.region for one in costs}):
        results += eks_prices.judge(eks_prices.read(each))
    seconds = round(time.monotonic() - started, 3)
    report = Report("eks cost", {"clusters": results}, details, strict=strict, seconds=seconds)
    publish(report, form, metrics, lambda: _show(costs, results, owners))
    raise click.exceptions.Exit(report.exit_code)


def _show(costs: Sequence[Spending], results: Sequence[Finding], owners: Mapping[str, Sum]) -> None:
    from gpuctl.eks.spending import at_least, usd

    if not costs:
        click.echo("gpuctl made no cluster")
        return
    rows = [
        (one.subject, part.cost.part, usd(part.cost.usd_hour), at_least(part.spent), part.cost.why)
        for one in costs
        for part in one.known
    ]
    output.table(("CLUSTER", "PART", "USD/HOUR", "USD SO FAR", "SOURCE"), rows)
    click.echo()
    lines = [
        (name, one.bounded(one.hour), at_least(one.spent), one.bounded(one.until_end)) for name, one in owners.items()
    ]
    output.table(("OWNER", "USD/HOUR", "USD SO FAR", "USD UNTIL END"), lines)
    click.echo()
    findings.show(results)
    click.echo("without disks of nodes, traffic and addons")


def _amounts(one: Sum) -> dict[str, Any]:
    values = {"usd_hour": one.hour, "usd_at_least": one.spent, "usd_until_end": one.until_end}
    rounded = {key: None if value is None else round(value, 2) for key, value in values.items()}
    return {**rounded, "is_lower_bound": not one.is_whole}


def _plain(one: Spending, whole: Sum) -> dict[str, Any]:
    parts = [
        {"part": part.cost.part, "usd_hour": part.cost.usd_hour, "usd_at_least": part.spent, "source": part.cost.why}
        for part in one.known
    ]
    ends = None if one.end is None else one.end.isoformat()
    place = {"cluster": one.cluster, "region": one.region, "owner": one.owner, "ends": ends}
    return {**place, **_amounts(whole), "parts": parts}
