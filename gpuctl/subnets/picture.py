"""Picture of a subnet's range: cells of equal size with who holds their addresses; as SVG text, too."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address

from gpuctl.subnets.blocks import PREFIX_SIZE, Range, aws_ranges, of_address, of_block
from gpuctl.subnets.model import Kind, Owner, Subnet

MOST_CELLS = 256
COLUMNS = 64  # cells of a row; a row of /28s is then a /22


class Space(StrEnum):
    """Use of an address that no interface has."""

    FREE = "free"
    AWS = "reserved by AWS"
    EXPLICIT = "explicit reservation"
    PREFIX = "prefix reservation"


Use = Kind | Space
# Letter and colour of each use; the letter alone is enough to read the picture. Colours: Okabe and Ito, and greys.
MARKS: Mapping[Use, tuple[str, str]] = {
    Space.FREE: ("·", "#f2f2f2"),
    Space.AWS: ("a", "#bdbdbd"),
    Space.EXPLICIT: ("x", "#969696"),
    Space.PREFIX: ("p", "#c7e9f7"),
    Kind.NODE: ("N", "#0072b2"),
    Kind.CNI: ("C", "#56b4e9"),
    Kind.BRANCH: ("B", "#7fcdbb"),
    Kind.INSTANCE: ("I", "#44546a"),
    Kind.CONTROL_PLANE: ("K", "#cc79a7"),
    Kind.LOAD_BALANCER: ("L", "#e69f00"),
    Kind.ENDPOINT: ("E", "#009e73"),
    Kind.NAT: ("T", "#8c510a"),
    Kind.LAMBDA: ("F", "#f0e442"),
    Kind.EFS: ("S", "#66a61e"),
    Kind.RDS: ("R", "#7570b3"),
    Kind.ECS: ("O", "#e7298a"),
    Kind.TRANSIT: ("G", "#a6761d"),
    Kind.SERVICE: ("W", "#666666"),
    Kind.DETACHED: ("D", "#d55e00"),
    Kind.UNKNOWN: ("?", "#000000"),
}


@dataclass(frozen=True)
class Cell:
    """Addresses from `first` on. `use`: who has most of those that are not free; `full`: none is free."""

    first: IPv4Address
    addresses: int
    use: Use
    full: bool
    counts: Mapping[Use, int]


def cells(subnet: Subnet, owners: Mapping[str, Owner]) -> list[Cell]:
    """Cells of one /28, or of more in a subnet with more than 256 of them; empty for a subnet with IPv6 only."""
    if subnet.block is None:
        return []
    size = max(PREFIX_SIZE, subnet.block.num_addresses // MOST_CELLS)
    uses = _uses(subnet, owners)
    return [_cell(subnet.block[first], uses[first : first + size]) for first in range(0, len(uses), size)]


def _uses(subnet: Subnet, owners: Mapping[str, Owner]) -> list[Use]:
    """Use of every address; an interface in a reservation counts as the interface."""
    if subnet.block is None:
        return []
    base, size = int(subnet.block.network_address), subnet.block.num_addresses
    painted: list[tuple[Range, Use]] = [
        (of_block(one.block, base), Space.PREFIX if one.prefixes else Space.EXPLICIT)
        for one in subnet.reservations or ()
    ]
    painted += [(one, Space.AWS) for one in aws_ranges(size)]
    for interface in subnet.interfaces:
        kind = owners[interface.name].kind
        painted += [(of_address(address, base), kind) for address in interface.addresses]
        painted += [(of_block(block, base), kind) for block in interface.prefixes]
    uses: list[Use] = [Space.FREE] * size
    for (first, end), use in painted:
        uses[first:end] = [use] * (end - first)
    return uses


def _cell(first: IPv4Address, uses: Sequence[Use]) -> Cell:
    counts = Counter(uses)
    free = counts[Space.FREE]
    others = {use: count for use, count in counts.items() if use is not Space.FREE}
    # Of equal shares the interface counts, not the reservation around it.
    use = max(others, key=lambda use: (isinstance(use, Kind), others[use]), default=Space.FREE)
    return Cell(first, len(uses), use, not free, dict(counts))


def legend(uses: Sequence[Use]) -> list[Use]:
    """Uses that occur, in the order of MARKS."""
    return [use for use in MARKS if use in set(uses)]


# ---- SVG -------------------------------------------------------------------------------------------------------------

CELL, GAP, LEFT, LINE = 14, 2, 16, 20  # pixels


def svg(subnets: Sequence[Subnet], owners: Mapping[str, Owner]) -> str:
    """A picture of all ranges. Each cell has its first address and its uses as a tooltip."""
    parts, top, shown = list[str](), LEFT, list[Use]()
    for subnet in subnets:
        drawn = cells(subnet, owners)
        shown += [use for cell in drawn for use in cell.counts]
        title = f"{subnet.name}  {subnet.label}  {subnet.block or 'IPv6 only'}  {subnet.zone_id or subnet.zone}"
        parts.append(_text(LEFT, top + 12, title))
        top += LINE
        parts += [_rect(cell, number, top) for number, cell in enumerate(drawn)]
        top += -(-len(drawn) // COLUMNS) * (CELL + GAP) + LINE
    for number, use in enumerate(legend(shown)):
        parts += _legend_entry(use, LEFT + number % 5 * 200, top + number // 5 * LINE)
    height = top + -(-len(legend(shown)) // 5) * LINE + LEFT
    width = 2 * LEFT + COLUMNS * (CELL + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="monospace" font-size="12"'
    return "\n".join([f"{head} {style}>", '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>"]) + "\n"


def _rect(cell: Cell, number: int, top: int) -> str:
    x, y = LEFT + number % COLUMNS * (CELL + GAP), top + number // COLUMNS * (CELL + GAP)
    uses = ", ".join(f"{count} {use}" for use, count in sorted(cell.counts.items(), key=lambda row: -row[1]))
    opacity = 1.0 if cell.full or cell.use is Space.FREE else 0.55
    title = f"{cell.first}, {cell.addresses} addresses: {uses}"
    fill = f'fill="{MARKS[cell.use][1]}" fill-opacity="{opacity}" stroke="#d0d0d0"'
    return f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" {fill}><title>{html.escape(title)}</title></rect>'


def _legend_entry(use: Use, x: int, y: int) -> list[str]:
    box = f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{MARKS[use][1]}" stroke="#d0d0d0"/>'
    return [box, _text(x + CELL + 6, y + 12, str(use))]


def _text(x: int, y: int, text: str) -> str:
    clean = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return f'<text x="{x}" y="{y}" xml:space="preserve">{html.escape(clean)}</text>'
