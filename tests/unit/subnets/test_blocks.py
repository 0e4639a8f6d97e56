"""Free addresses and blocks of subnets, against a model that looks at every address."""

from __future__ import annotations

import random

import pytest

from gpuctl.subnets.blocks import space
from tests.rig.subnet_model import brute_force, random_subnet, subnet


@pytest.mark.parametrize("seed", range(10))
def test_random_subnets_have_the_space_that_counting_every_address_gives(seed: int) -> None:
    """Ten subnets each; bench/subnets.py does it for 10,000."""
    source = random.Random(seed)  # noqa: S311
    for number in range(10):
        made = random_subnet(source)
        assert space(made) == brute_force(made), (seed, number, made)


def test_an_empty_subnet_lacks_the_five_addresses_of_aws() -> None:
    room = space(subnet("10.0.0.0/24"))
    assert room is not None
    assert (room.size, room.free, room.assigned) == (256, 251, 0)
    assert (room.free_prefixes, room.largest) == (14, 26)  # the first and last /28 have addresses of AWS


def test_the_smallest_subnet_has_no_free_prefix() -> None:
    room = space(subnet("10.0.0.0/28"))
    assert room is not None
    assert (room.free, room.free_prefixes, room.largest) == (11, 0, 30)


def test_one_address_in_each_block_leaves_many_addresses_and_no_prefix() -> None:
    room = space(subnet("10.0.0.0/24", addresses=[f"10.0.0.{n}" for n in range(8, 256, 16)]))
    assert room is not None
    assert (room.free, room.free_prefixes, room.largest) == (235, 0, 29)


def test_a_prefix_reservation_is_for_prefixes_only() -> None:
    room = space(subnet("10.0.0.0/24", prefix_reservations=["10.0.0.128/25"]))
    assert room is not None
    assert (room.free, room.free_prefixes, room.reserved_prefixes) == (124, 14, 7)
    assert room.unused == 251


def test_an_explicit_reservation_is_for_nobody() -> None:
    room = space(subnet("10.0.0.0/24", explicit_reservations=["10.0.0.128/25"]))
    assert room is not None
    assert (room.free, room.free_prefixes, room.reserved_prefixes) == (124, 7, 0)


def test_prefixes_of_interfaces_hold_sixteen_addresses_each() -> None:
    room = space(subnet("10.0.0.0/24", prefixes=["10.0.0.16/28"]))
    assert room is not None
    assert (room.assigned, room.free, room.free_prefixes) == (16, 235, 13)


def test_a_full_subnet_has_no_block() -> None:
    room = space(subnet("10.0.0.0/28", addresses=[f"10.0.0.{n}" for n in range(4, 15)]))
    assert room is not None
    assert (room.free, room.free_prefixes, room.largest) == (0, 0, None)


def test_a_subnet_with_ipv6_only_has_no_space() -> None:
    assert space(subnet("")) is None
