"""subnets diagnose: tell why interfaces, nodes or EFA traffic fail in a subnet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.cli.subnets.options import selection
from gpuctl.subnets.request import SubnetsRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuctl.domain.findings import Finding
    from gpuctl.subnets.model import Listing, Subnet
    from gpuctl.subnets.network import Network

HEAD = ("SUBNET", "NAME", "AZ", "CIDR", "FREE", "FREE /28", "DEFAULT ROUTE", "NETWORK ACL")


@click.command()
@options.as_request(SubnetsRequest, selection)
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def diagnose(request: SubnetsRequest, strict: bool, form: Form, metrics: Path | None) -> None:
    """Tell why interfaces, nodes or EFA traffic fail in a subnet.

    Checks free addresses and /28s, fragmentation, routes and NAT gateways, endpoints of AWS's services, network ACLs
    against EFA and the control plane, zones, and the DNS settings of the VPC.
    """
    from gpuctl.domain.report import Report
    from gpuctl.subnets import flow, network_flow
    from gpuctl.subnets.diagnose import diagnose as judge

    check_folder(metrics)
    started = time.monotonic()
    aws = flow.connect(request.region, request.aws_profile)
    with output.slow_notice("asking AWS"):
        listing = flow.list_subnets(aws, request)
        network = network_flow.read_network(aws, listing.subnets)
    results = judge(listing, network)
    details = {"region": listing.region, "subnets": [as_dict(one, network) for one in listing.subnets]}
    seconds = round(time.monotonic() - started, 3)
    target = request.cluster or request.vpc or listing.region
    report = Report("subnets diagnose", {target: results}, details, strict=strict, seconds=seconds)
    publish(report, form, metrics, lambda: show(listing, network, results))
    raise click.exceptions.Exit(report.exit_code)


def show(listing: Listing, network: Network, results: Sequence[Finding]) -> None:
    from gpuctl.domain.findings import Verdict, worst_first

    output.table(HEAD, (_line(subnet, network) for subnet in listing.subnets))
    problems = [finding for finding in results if finding.verdict is not Verdict.OK]
    if problems:
        click.echo()
        findings.show(worst_first(problems))
    passed = output.plural(len(results) - len(problems), "check")
    click.echo(f"\n{output.plural(len(listing.subnets), 'subnet')} in {listing.region}: {passed} passed, "
               f"{output.plural(len(problems), 'finding')}")  # fmt: skip


def _line(subnet: Subnet, network: Network) -> tuple[str, ...]:
    from gpuctl.subnets.blocks import space

    plain, room = as_dict(subnet, network), space(subnet)
    free = (str(room.free), str(room.free_prefixes)) if room else ("-", "-")
    where = (subnet.name, subnet.label or "-", subnet.zone_id or subnet.zone, str(subnet.block or "IPv6 only"))
    default = plain["default_route"] or ("none" if plain["route_table"] else "UNKNOWN")
    return (*where, *free, default, plain["network_acl"] or "UNKNOWN")


def as_dict(subnet: Subnet, network: Network) -> dict[str, Any]:
    """JSON form (docs/subnets.md); None for what could not be read, and for no default route."""
    from gpuctl.subnets.diagnose import default_route

    table, acl = network.table(subnet.name, subnet.vpc), network.acl(subnet.name)
    return {
        "subnet": subnet.name,
        "vpc": subnet.vpc,
        "zone_id": subnet.zone_id or None,
        "route_table": table.name if table else None,
        "default_route": (default_route(table) or None) if table else None,
        "network_acl": acl.name if acl else None,
    }
