"""eks plan: predict what would fail if a cluster were made, and its cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuctl.workflows.eks_plan import EksPlan


prices_option = click.option(
    "--prices", is_flag=True, help="Ask AWS's Pricing API for the prices of the types, and store them for later plans."
)


@dataclass(frozen=True)
class PlanRequest:
    """A cluster file by name or path. `aws_profile`: "" for that of the AWS configuration."""

    cluster: str
    aws_profile: str
    prices: bool


@click.command()
@options.as_request(
    PlanRequest,
    click.argument("cluster", metavar="NAME|FILE"),
    options.aws_profile,
    prices_option,
)
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def plan(request: PlanRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """Ask AWS what would fail if this cluster were made, and print its cost. Nothing is made.

    Checks permissions, the name and version, zones, the offer of each type, images, reservations, placement groups,
    quotas against what runs now, limits, addresses and network of the subnets, and the budget. Exit code 1 for FAIL
    and UNKNOWN.
    """
    from gpuctl.domain.report import Report
    from gpuctl.eks import cluster_file
    from gpuctl.eks.cost import price_day, total, uncounted
    from gpuctl.workflows import eks_plan

    check_folder(metrics)
    started = time.monotonic()
    cluster = cluster_file.load(cluster_file.find(request.cluster))
    with output.slow_notice("asking AWS"):
        made = eks_plan.plan(eks_plan.connect(cluster.region, request.aws_profile), cluster, request.prices)
    hourly, day = total(made.costs), price_day(cluster, made.prices)
    details: dict[str, Any] = {
        "region": cluster.region,
        "usd_hour": hourly,
        "usd_until_end": None if hourly is None or cluster.ttl_hours is None else round(hourly * cluster.ttl_hours, 2),
        "is_lower_bound": bool(uncounted(made.costs)),
        "price_date": None if day is None else str(day),
        "costs": [{"part": one.part, "usd_hour": one.usd_hour, "source": one.why} for one in made.costs],
    }
    seconds = round(time.monotonic() - started, 3)
    report = Report("eks plan", {cluster.name: list(made.findings)}, details, strict=strict, seconds=seconds)
    publish(report, form, metrics, lambda: _show(made))
    raise click.exceptions.Exit(report.exit_code)


def _show(made: EksPlan) -> None:
    from gpuctl.domain.findings import Verdict, problems, worst_first

    cluster = made.cluster
    findings.show(worst_first(made.findings))
    click.echo()
    show_costs(made)
    bad = len(problems(made.findings))
    warnings = sum(one.verdict is Verdict.WARN for one in made.findings)
    click.echo(
        f"{cluster.name} in {cluster.region}: {output.plural(bad, 'problem')}, {output.plural(warnings, 'warning')}"
    )


def show_costs(made: EksPlan, err: bool = False) -> None:
    """Print the cost of each part, the sum, and the price of a load balancer."""
    from gpuctl.workflows import eks_prices

    rows = ((one.part, _usd(one.usd_hour), one.why) for one in made.costs)
    output.table(("PART", "USD/HOUR", "SOURCE"), rows, err=err)
    click.echo("\n".join(_sum(made)), err=err)
    price = eks_prices.of_balancer(made.cluster.region)
    click.echo(
        f"a load balancer (`eks pod --expose nlb`) beside it: {price}, and its traffic and public addresses", err=err
    )


def _sum(made: EksPlan) -> Iterator[str]:
    from gpuctl.eks.cost import total, uncounted

    hourly, hours = total(made.costs), made.cluster.ttl_hours
    if hourly is None:
        yield "sum: UNKNOWN, as a price is not known"
        return
    until = f", {hourly * hours:.2f} USD in {hours:g} hours" if hours is not None else ""
    missing = uncounted(made.costs)
    least = "at least " if missing else ""
    without = output.names([*missing, "traffic", "load balancers", "public addresses of nodes"])
    yield f"sum: {least}{hourly:.2f} USD an hour{until}; without {without}"


def _usd(value: float | None) -> str:
    return "UNKNOWN" if value is None else f"{value:.2f}"
