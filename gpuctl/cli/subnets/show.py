"""subnets: show free addresses and blocks, owners, and a picture of the range."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import files, findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.cli.subnets.options import selection
from gpuctl.engine import printable
from gpuctl.subnets.request import SubnetsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuctl.domain.findings import Finding
    from gpuctl.subnets.model import Listing, Owner, Subnet

DRAW = "draw to"
MOST_PICTURES = 10  # drawn without --picture
HEAD = ("SUBNET", "NAME", "AZ", "CIDR", "FREE", "FREE /28", "LARGEST", "USED BY")


@click.command("show", hidden=True)
@options.as_request(SubnetsRequest, selection)
@click.option("--picture/--no-picture", default=None, help="Draw each range.  [default: if there are at most 10]")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Draw all to this file.")
@click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
@report_options
def show(
    request: SubnetsRequest, picture: bool | None, svg: Path | None, strict: bool, form: Form, metrics: Path | None
) -> None:
    """List subnets with their free addresses, free aligned /28s and largest free block, and who holds the rest.

    The picture has a cell for each /28 (or more in large subnets): a letter for who holds it, in lower case
    if a part is free, and · if all of it is free.
    """
    from gpuctl.domain.report import Report
    from gpuctl.subnets import flow
    from gpuctl.subnets import picture as drawing
    from gpuctl.subnets.judge import judge
    from gpuctl.subnets.owners import owners

    check_folder(metrics)
    files.check_folder(svg, DRAW)
    started = time.monotonic()
    with output.slow_notice("asking AWS"):
        listing = flow.list_subnets(flow.connect(request.region, request.aws_profile), request)
    owner_by_interface = owners(listing.subnets)
    if svg is not None:
        files.write(svg, drawing.svg(listing.subnets, owner_by_interface), DRAW, files.READABLE)
    results = judge(listing)
    details = {
        "region": listing.region,
        "account": listing.account or None,
        "subnets": as_dicts(listing, owner_by_interface),
    }
    seconds = round(time.monotonic() - started, 3)
    target = request.cluster or request.vpc or listing.region
    report = Report("subnets", {target: results}, details, strict=strict, seconds=seconds)
    draws = picture if picture is not None else len(listing.subnets) <= MOST_PICTURES
    publish(report, form, metrics, lambda: table(listing, owner_by_interface, results, draws))
    raise click.exceptions.Exit(report.exit_code)


def table(listing: Listing, owner_by_interface: Mapping[str, Owner], results: Sequence[Finding], draws: bool) -> None:
    from gpuctl.domain.findings import Verdict

    output.table(HEAD, (row(subnet, owner_by_interface) for subnet in listing.subnets))
    if draws:
        click.echo()
        for line in pictures(listing.subnets, owner_by_interface):
            click.echo(line)
    problems = [finding for finding in results if finding.verdict is not Verdict.OK]
    if problems:
        click.echo()
        findings.show(problems)
    count = output.plural(len(listing.subnets), "subnet")
    click.echo(f"\n{count} in {listing.region}: {len(problems)} findings" if problems else f"\n{count}: all well")


def row(subnet: Subnet, owner_by_interface: Mapping[str, Owner]) -> tuple[str, ...]:
    from gpuctl.subnets.blocks import space

    room = space(subnet)
    start = (subnet.name, subnet.label or "-", subnet.zone_id or subnet.zone)
    if room is None:
        return (*start, "IPv6 only", "-", "-", "-", used_by(subnet, owner_by_interface))
    unsure = "" if subnet.reservations is not None else "≤"
    of_reservation = f" ({room.reserved_prefixes} reserved)" if room.reserved_prefixes else ""
    return (
        *start,
        str(subnet.block),
        f"{unsure}{room.free} of {room.size}",
        f"{unsure}{room.free_prefixes}{of_reservation}",
        f"/{room.largest}" if room.largest else "none",
        used_by(subnet, owner_by_interface),
    )


def used_by(subnet: Subnet, owner_by_interface: Mapping[str, Owner]) -> str:
    """ "12 CNI, 4 node": addresses by the sort of their owner, the most first."""
    counts = addresses_by_kind(subnet, owner_by_interface)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nobody"


def addresses_by_kind(subnet: Subnet, owner_by_interface: Mapping[str, Owner]) -> dict[str, int]:
    from gpuctl.subnets.blocks import PREFIX_SIZE

    counts = Counter[str]()
    for one in subnet.interfaces:
        counts[str(owner_by_interface[one.name].kind)] += len(one.addresses) + PREFIX_SIZE * len(one.prefixes)
    return dict(counts.most_common())


def pictures(subnets: Sequence[Subnet], owner_by_interface: Mapping[str, Owner]) -> Iterator[str]:
    """Lines of all pictures and of their legend, with colours, which `click.echo` removes for files and pipes."""
    from gpuctl.subnets import picture

    uses: list[picture.Use] = []
    for subnet in subnets:
        cells = picture.cells(subnet, owner_by_interface)
        if not cells:
            continue
        uses += [use for cell in cells for use in cell.counts]
        size = 33 - cells[0].addresses.bit_length()
        yield printable(f"{subnet.name}  {subnet.block}  {subnet.label}".rstrip()) + f", one cell for each /{size}"
        for start in range(0, len(cells), picture.COLUMNS):
            marks = "".join(_mark(cell) for cell in cells[start : start + picture.COLUMNS])
            yield f"  {cells[start].first!s:15} {marks}"
    entries = [f"{_coloured(picture.MARKS[use][0], use)} {use}" for use in picture.legend(uses)]
    yield f"  {'':15} {'  '.join(entries)}" if entries else ""


def _mark(cell: Any) -> str:
    from gpuctl.subnets import picture

    letter = picture.MARKS[cell.use][0]
    return _coloured(letter if cell.full or cell.use is picture.Space.FREE else letter.lower(), cell.use)


def _coloured(letter: str, use: Any) -> str:
    from gpuctl.subnets import picture

    colour = picture.MARKS[use][1]
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    dark = red * 299 + green * 587 + blue * 114 < 128_000
    return click.style(letter, bg=(red, green, blue), fg="bright_white" if dark else "black")


def as_dicts(listing: Listing, owner_by_interface: Mapping[str, Owner]) -> list[dict[str, Any]]:
    """JSON form of the subnets (docs/subnets.md)."""
    return [_as_dict(subnet, owner_by_interface) for subnet in listing.subnets]


def _as_dict(subnet: Subnet, owner_by_interface: Mapping[str, Owner]) -> dict[str, Any]:
    from gpuctl.subnets.blocks import space

    room = space(subnet)
    reservations = subnet.reservations
    return {
        "subnet": subnet.name,
        "name": subnet.label or None,
        "vpc": subnet.vpc,
        "zone": subnet.zone or None,
        "zone_id": subnet.zone_id or None,
        "cidr": str(subnet.block) if subnet.block else None,
        "free_addresses": room.free if room else None,
        "aws_free_addresses": subnet.aws_free[-1],
        "free_prefixes": room.free_prefixes if room else None,
        "reserved_prefixes": room.reserved_prefixes if room else None,
        "largest_free_prefix_length": room.largest if room else None,
        "addresses_by_owner": addresses_by_kind(subnet, owner_by_interface),
        "reservations": None
        if reservations is None
        else [{"cidr": str(one.block), "type": "prefix" if one.prefixes else "explicit"} for one in reservations],
        "interfaces": [
            {
                "interface": one.name,
                "owner": str(owner_by_interface[one.name].kind),
                "owner_name": owner_by_interface[one.name].name or None,
                "status": one.status,
                "addresses": [str(address) for address in one.addresses],
                "prefixes": [str(block) for block in one.prefixes],
            }
            for one in subnet.interfaces
        ],
    }
