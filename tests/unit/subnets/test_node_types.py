"""Interfaces of every GPU type that AWS describes, against the site-independent table of types and AWS's rules."""

from __future__ import annotations

import csv
import gzip
import io
import json
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.subnets.node_type import EFA, EFA_ONLY, PLAIN, Layout, NodeType, interfaces, read
from tests.rig.recordings import recording


@cache
def described() -> dict[str, dict[str, Any]]:
    """Answers of DescribeInstanceTypes, as moto serves them."""
    packed = files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes()
    plain: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed))
    return plain


def node(name: str) -> NodeType:
    return read({"InstanceType": name, **described()[name]})


def rows() -> list[dict[str, str]]:
    text = recording("../data/instance-types.tsv").read_text()
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def indexes(text: str) -> set[int]:
    """Numbers of "0-3,8"; "-" for none."""
    result = set[int]()
    for part in text.split(",") if text != "-" else ():
        first, _, last = part.partition("-")
        result |= set(range(int(first), int(last or first) + 1))
    return result


def test_every_gpu_type_is_read_as_the_table_of_types_has_it() -> None:
    known = rows()
    assert len(known) >= 60
    for row in known:
        made = node(row["type"])
        with_efa = {card.index for card in made.cards if EFA in card.types}
        assert (len(made.cards), made.efas, made.addresses) == (
            int(row["network_cards"]),
            int(row["efa_max"]),
            int(row["ipv4_per_eni"]),
        ), row["type"]
        assert with_efa == indexes(row["efa_card_indexes"]), row["type"]
        assert any(EFA_ONLY in card.types for card in made.cards) is (row["efa_only_supported"] == "yes"), row["type"]
        default = next(card for card in made.cards if card.index == made.default_card)
        assert default.interfaces == int(row["enis_on_default_card"]), row["type"]


@pytest.mark.parametrize("layout", [Layout.EFA_ONLY, Layout.BANDWIDTH, Layout.EFA, Layout.PLAIN])
def test_the_interfaces_of_every_gpu_type_keep_to_the_rules_of_ec2(layout: Layout) -> None:
    for row in rows():
        made = node(row["type"])
        planned = interfaces(made, layout)
        cards = {card.index: card for card in made.cards}
        assert (planned[0].card, planned[0].device) == (made.default_card, 0), made.name
        assert planned[0].kind != EFA_ONLY, made.name
        assert len({(one.card, one.device) for one in planned}) == len(planned), made.name
        for one in planned:
            assert one.kind in cards[one.card].types, (made.name, one)
            assert one.device < cards[one.card].interfaces, (made.name, one)
        efas = [one.card for one in planned if one.kind != PLAIN]
        assert len(efas) == len(set(efas)), made.name
        assert len(efas) == (0 if layout is Layout.PLAIN else made.efas), made.name


def test_an_answer_that_lacks_something_is_named() -> None:
    with pytest.raises(GpuctlError, match=r"p5\.48xlarge: keyerror 'NetworkInfo'"):
        read({"InstanceType": "p5.48xlarge"})
    with pytest.raises(GpuctlError, match="one without a name"):
        read({})
