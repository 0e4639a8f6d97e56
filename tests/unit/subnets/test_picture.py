"""The picture of a range, on a terminal and as SVG."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from xml.etree import ElementTree

import click

from gpuctl.cli.subnets.show import pictures
from gpuctl.subnets.model import Interface, Kind
from gpuctl.subnets.owners import owners
from gpuctl.subnets.picture import Space, cells, svg
from tests.rig.subnet_model import subnet

CNI = Interface(
    "eni-9", "subnet-0", "in-use", "aws-K8S-i-1", addresses=[IPv4Address(f"10.0.0.{n}") for n in range(16, 32)]
)
MADE = subnet("10.0.0.0/24", interfaces=[CNI], prefix_reservations=["10.0.0.128/25"])
OWNERS = owners([MADE])


def test_a_cell_stands_for_each_28_and_counts_every_address() -> None:
    drawn = cells(MADE, OWNERS)
    assert [cell.use for cell in drawn[:3]] == [Space.AWS, Kind.CNI, Space.FREE]
    assert (drawn[0].counts, drawn[0].full) == ({Space.AWS: 4, Space.FREE: 12}, False)
    assert (drawn[1].counts, drawn[1].full) == ({Kind.CNI: 16}, True)
    assert drawn[8].use is Space.PREFIX
    assert sum(sum(cell.counts.values()) for cell in drawn) == 256


def test_a_large_subnet_has_larger_cells() -> None:
    drawn = cells(subnet("10.0.0.0/16"), {})
    assert len(drawn) == 256
    assert {cell.addresses for cell in drawn} == {256}


def test_the_terminal_shows_a_letter_for_each_cell_and_a_legend() -> None:
    lines = [click.unstyle(line) for line in pictures([MADE], OWNERS)]
    assert lines[0] == "subnet-0  10.0.0.0/24, one cell for each /28"
    assert lines[1].split() == ["10.0.0.0", "aC······pppppppp"]
    assert lines[-1].split("  ")[-1] == "C CNI"


def test_the_svg_parses_has_each_cell_once_and_escapes_names() -> None:
    text = svg([replace(MADE, label='<a & "b">\x1b')], OWNERS)
    root = ElementTree.fromstring(text)  # noqa: S314 - our own text
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 16
    assert titles[1] == "10.0.0.16, 16 addresses: 16 CNI"
    assert '<a & "b">' in "".join(root.itertext())
