"""Zones and blocks of a VPC of its own, and the subnets of node groups."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.model import NodeGroup
from gpuctl.eks.network import Home, choose_zones, homes, places

ZONES = ["use1-az1", "use1-az2", "use1-az3", "use1-az4", "use1-az6"]
ANY = frozenset(ZONES)


def group(placement: str = "none") -> NodeGroup:
    return NodeGroup("gpu", "p5.48xlarge", 0, 2, 1, placement=placement)


@pytest.mark.parametrize("block", ["10.20.0.0/16", "10.20.0.0/24"])
def test_subnets_do_not_overlap_lie_in_the_vpc_and_hold_a_control_plane(block: str) -> None:
    made = places(IPv4Network(block), ZONES[:3])
    assert [one.part for one in made] == [f"{kind}-{number}" for kind in ("public", "private") for number in range(3)]
    assert all(one.block.subnet_of(IPv4Network(block)) and one.block.prefixlen <= 28 for one in made)
    assert not any(a.block.overlaps(b.block) for a in made for b in made if a is not b)


def test_a_zone_without_a_control_plane_is_not_chosen() -> None:
    assert choose_zones(ZONES, {"gpu": ANY}, {}) == ["use1-az1", "use1-az2", "use1-az4"]


def test_the_only_zone_of_a_group_is_among_them() -> None:
    assert "use1-az6" in choose_zones(ZONES, {"gpu": frozenset({"use1-az6"}), "system": ANY}, {})


def test_zones_of_an_interrupted_run_keep_their_number() -> None:
    assert choose_zones(ZONES, {"gpu": ANY}, {1: "use1-az6"}) == ["use1-az1", "use1-az6", "use1-az2"]


def test_groups_in_more_zones_than_there_are_subnets_are_refused() -> None:
    needed = {f"g{number}": frozenset({zone}) for number, zone in enumerate(ZONES) if zone != "use1-az3"}
    with pytest.raises(InvalidInput, match="need 4 zones"):
        choose_zones(ZONES, needed, {})


def test_a_reservation_in_a_zone_without_a_control_plane_is_refused() -> None:
    with pytest.raises(InvalidInput, match="use1-az3"):
        choose_zones(ZONES, {"gpu": frozenset({"use1-az3"})}, {})


@pytest.mark.parametrize(
    ("placement", "has_efa", "names"), [("none", False, ["a", "b"]), ("none", True, ["b"]), ("cluster", False, ["b"])]
)
def test_efa_and_cluster_placement_stay_in_the_emptiest_zone(placement: str, has_efa: bool, names: list[str]) -> None:
    subnets = [Home("a", "use1-az1", 10), Home("b", "use1-az2", 99), Home("c", "use1-az4", 500)]
    chosen = homes(group(placement), has_efa, {"use1-az1", "use1-az2"}, subnets)
    assert [one.name for one in chosen] == names


@pytest.mark.parametrize(("strategy", "names"), [("cluster", ["b"]), ("partition", ["a", "b"]), ("", ["a", "b"])])
def test_a_named_placement_group_stays_in_a_zone_if_its_strategy_is_cluster(strategy: str, names: list[str]) -> None:
    subnets = [Home("a", "use1-az1", 10), Home("b", "use1-az2", 99)]
    assert [one.name for one in homes(group("theirs"), False, ANY, subnets, strategy)] == names
