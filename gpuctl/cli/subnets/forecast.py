"""subnets forecast: tell whether nodes fit, in which subnet, and what breaks first."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.cli.subnets.options import selection
from gpuctl.subnets.request import ForecastRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuctl.domain.findings import Finding
    from gpuctl.subnets.forecast import Fit
    from gpuctl.subnets.judge_forecast import Row

HEAD = ("SUBNET", "NAME", "AZ", "CIDR", "FREE", "FREE /28", "NODES", "BREAKS FIRST")
MOST_NODES = 5000  # as forecast.MOST_NODES, which a help page does not load


@click.command()
@options.as_request(
    ForecastRequest,
    click.option("--type", "instance_type", metavar="TYPE", required=True, callback=options.not_empty,
                 help="Instance type of the nodes, such as p5.48xlarge."),
    click.option("--nodes", metavar="N", type=click.IntRange(1, MOST_NODES), required=True, help="Number of nodes."),
    click.option("--pods", metavar="N", type=click.IntRange(0, 1000), default=10, show_default=True,
                 help="Pods on each node that have an address of their own (not hostNetwork)."),
    click.option("--layout", type=click.Choice(["efa-only", "bandwidth", "efa", "plain"]), default="efa-only",
                 show_default=True, help="Interfaces of a node: efa-only ones take no address; bandwidth adds plain "
                 "ones for IP traffic; efa gives each EFA interface an address; plain has no EFA."),
    click.option("--cni", metavar="NAME=VALUE", multiple=True,
                 help="Setting of the VPC CNI, such as WARM_IP_TARGET=2. Repeatable.  [default: the CNI's defaults]"),
    selection,
)  # fmt: skip
@report_options
def forecast(request: ForecastRequest, form: Form, metrics: Path | None) -> None:
    """Tell whether new nodes fit: in which subnet, what breaks first, and with which setting they would fit.

    NODES is the number that fit for certain; "4 to 6" means 6 if EC2 takes single addresses from broken /28s.
    """
    from gpuctl.domain.report import Report
    from gpuctl.subnets import demand, flow, judge_forecast
    from gpuctl.subnets.node_type import Layout

    check_folder(metrics)
    started = time.monotonic()
    cni = demand.settings(request.cni)
    aws = flow.connect(request.selection.region, request.selection.aws_profile)
    with output.slow_notice("asking AWS"):
        node, zones = flow.node_type(aws, request.instance_type)
        # All subnets of the VPCs: the CNI may put interfaces into others than the nodes.
        listing = flow.list_subnets(aws, replace(request.selection, subnet=()))
    chosen = [one for one in listing.subnets if not request.selection.subnet or one.name in request.selection.subnet]
    flow.check_subnets(chosen, request.selection)
    plan = judge_forecast.Plan(node, request.nodes, request.pods, Layout(request.layout), cni, zones)
    table = judge_forecast.rows(plan, chosen, listing.subnets)
    finding = judge_forecast.judge(plan, table, listing.subnets)
    details = {
        "region": listing.region,
        "instance_type": node.name,
        "nodes": request.nodes,
        "pods": request.pods,
        "layout": request.layout,
        "addresses_per_node": plan.demand.addresses,
        "prefixes_per_node": plan.demand.prefixes,
        "subnets": [as_dict(row) for row in table],
    }
    seconds = round(time.monotonic() - started, 3)
    report = Report("subnets forecast", {str(plan): [finding]}, details, seconds=seconds)
    publish(report, form, metrics, lambda: show(table, finding))
    raise click.exceptions.Exit(report.exit_code)


def show(table: Sequence[Row], finding: Finding) -> None:
    output.table(HEAD, (_line(row) for row in table))
    click.echo()
    findings.show([finding])


def _line(row: Row) -> tuple[str, ...]:
    from gpuctl.subnets.blocks import space

    subnet, room = row.subnet, space(row.subnet)
    start = (subnet.name, subnet.label or "-", subnet.zone_id or subnet.zone, str(subnet.block or "IPv6 only"))
    free = (str(room.free), str(room.free_prefixes)) if room else ("-", "-")
    if row.fit is None:
        return (*start, *free, "0", "its zone does not offer the type")
    breaks = row.fit.breaks
    first = f"{breaks.error} in {breaks.subnet}" if breaks else "-"
    return (*start, *free, ("≤" if row.is_unsure else "") + count(row.fit), first)


def count(fit: Fit) -> str:
    """The nodes that fit, such as "4 to 6" or "5000 or more"."""
    if fit.certain == MOST_NODES:
        return f"{MOST_NODES} or more"
    return str(fit.certain) if fit.certain == fit.possible else f"{fit.certain} to {fit.possible}"


def as_dict(row: Row) -> dict[str, Any]:
    """JSON form (docs/subnets.md)."""
    found, breaks = row.fit, row.fit.breaks if row.fit else None
    return {
        "subnet": row.subnet.name,
        "zone_id": row.subnet.zone_id or None,
        "offers_type": found is not None,
        "certain_nodes": found.certain if found else 0,
        "possible_nodes": found.possible if found else 0,
        "breaks_first": {"subnet": breaks.subnet, "error": breaks.error, "node_launches": breaks.launches}
        if breaks
        else None,
        "reservations_known": not row.is_unsure,
    }
