"""A free block is chosen, and the text for it parses."""

from __future__ import annotations

import random
from ipaddress import IPv4Network

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.subnets.new_subnet import NewSubnet, choose, cloudformation, reserve, terraform

VPC = [IPv4Network("10.0.0.0/20")]
TAKEN = [IPv4Network("10.0.0.0/24"), IPv4Network("10.0.2.0/23")]
BLOCK = IPv4Network("10.0.4.0/22")
TAGS = {"kubernetes.io/role/cni": "1", "kubernetes.io/cluster/learning": "shared"}
NEW = NewSubnet("vpc-0", BLOCK, "use1-az6", 'gpu "${a}" %{b}', TAGS, IPv4Network("10.0.6.0/23"))


@pytest.mark.parametrize(("size", "block"), [("/24", "10.0.1.0/24"), ("/23", "10.0.4.0/23"), ("/21", "10.0.8.0/21")])
def test_the_first_free_block_of_a_size_is_chosen(size: str, block: str) -> None:
    assert choose(size, VPC, TAKEN) == IPv4Network(block)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("10.0.0.128/25", "overlaps the subnet 10.0.0.0/24"),
        ("10.1.0.0/24", "not in the VPC, which has 10.0.0.0/20"),
        ("10.0.1.1/24", "has host bits set"),
        ("10.0.1.0/29", "/29 is no size of a subnet"),
        ("/15", "/15 is no size of a subnet"),
        ("/x", "/x is no size of a subnet"),
        ("/20", "no free block of /20"),
        ("nonsense", "--cidr"),
    ],
)
def test_a_block_that_cannot_be_used_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        choose(text, VPC, TAKEN)


def test_the_chosen_block_is_the_first_of_all_that_are_free() -> None:
    source = random.Random(1)  # noqa: S311
    for _ in range(25):
        taken = [IPv4Network((0x0A000000 + source.randrange(64) * 64, 26)) for _ in range(source.randrange(60))]
        length = source.randint(21, 28)
        free = [one for one in VPC[0].subnets(new_prefix=length) if not any(one.overlaps(other) for other in taken)]
        if free:
            assert choose(f"/{length}", VPC, taken) == free[0]
        else:
            with pytest.raises(InvalidInput):
                choose(f"/{length}", VPC, taken)


@pytest.mark.parametrize(("text", "part"), [("half", "10.0.6.0/23"), ("10.0.4.0/28", "10.0.4.0/28")])
def test_a_part_is_reserved_for_prefixes(text: str, part: str) -> None:
    assert reserve(BLOCK, text) == IPv4Network(part)


@pytest.mark.parametrize("text", ["10.0.0.0/24", "10.0.4.0/29", "10.0.4.1/28", "x"])
def test_a_part_outside_the_subnet_or_too_small_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        reserve(BLOCK, text)


def test_names_are_no_templates_of_terraform() -> None:
    assert '"gpu \\"$${a}\\" %%{b}"' in terraform(NEW)


def test_terraform_is_formatted() -> None:
    lines = terraform(NEW).splitlines()
    tags = [line for line in lines if line.startswith('    "')]
    assert len({line.index(" = ") for line in tags}) == 1
    assert [line for line in lines if line != line.rstrip() or "\t" in line] == []


def test_cloudformation_cannot_reserve() -> None:
    with pytest.raises(InvalidInput, match="cannot reserve"):
        cloudformation(NEW)
