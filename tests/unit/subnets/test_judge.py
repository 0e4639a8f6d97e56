"""Findings on subnets."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.subnets.judge import judge
from gpuctl.subnets.model import Interface, Subnet
from tests.rig.subnet_model import counted, listing, subnet
from tests.unit.subnets.test_owners import LEAKED


def findings(made: Subnet) -> dict[str, Finding]:
    return {finding.check: finding for finding in judge(listing(made))}


def test_an_empty_subnet_is_well() -> None:
    [finding] = judge(listing(subnet("10.0.0.0/24")))
    assert (finding.verdict, finding.message) == (Verdict.OK, "251 of 256 addresses are free, and 14 aligned /28")


@pytest.mark.parametrize(
    ("free", "verdict"), [(0, Verdict.FAIL), (1, Verdict.WARN), (5, Verdict.WARN), (7, Verdict.WARN), (8, None)]
)
def test_few_free_addresses(free: int, verdict: Verdict | None) -> None:
    made = subnet("10.0.0.0/26", addresses=[f"10.0.0.{n}" for n in range(4, 63 - free)])
    finding = findings(made).get("free-addresses")
    assert (finding.verdict if finding else None) == verdict
    if finding:
        assert finding.numbers["free_addresses"] == free


def fragmented(**more: object) -> Subnet:
    return subnet("10.0.0.0/24", addresses=[f"10.0.0.{n}" for n in range(8, 256, 16)], **more)  # type: ignore[arg-type]


def test_fragmentation_is_a_warning_where_nobody_uses_prefixes() -> None:
    finding = findings(fragmented())["free-prefixes"]
    assert finding.verdict is Verdict.WARN
    assert "InsufficientCidrBlocks" in finding.message


def test_fragmentation_fails_where_the_cni_assigns_prefixes() -> None:
    node = Interface("eni-2", "subnet-0", "in-use", prefixes=[IPv4Network("10.0.0.16/28")])
    finding = findings(counted(replace(fragmented(), interfaces=[*fragmented().interfaces, node])))["free-prefixes"]
    assert finding.verdict is Verdict.FAIL


def test_addresses_that_no_listed_interface_has_make_the_count_unknown() -> None:
    finding = findings(counted(subnet("10.0.0.0/24"), hidden=3))["free-counts"]
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.message.startswith("AWS counts 3 fewer free addresses")
    shared = replace(counted(subnet("10.0.0.0/24"), hidden=3), shared_by="210987654321")
    assert "account 210987654321 shares this subnet" in findings(shared)["free-counts"].message


def test_an_interface_that_is_made_while_we_read_is_no_difference() -> None:
    made = subnet("10.0.0.0/24")
    assert "free-counts" not in findings(replace(made, aws_free=(251, 250)))


def test_reservations_that_may_not_be_listed_are_unknown() -> None:
    finding = findings(replace(subnet("10.0.0.0/24"), reservations=None, why="no permission"))["reservations"]
    assert finding.verdict is Verdict.UNKNOWN
    assert "no permission" in finding.message


def test_leaked_interfaces_are_named_with_what_they_hold() -> None:
    held = replace(LEAKED, addresses=[IPv4Address("10.0.0.9")], prefixes=[IPv4Network("10.0.0.16/28")])
    finding = findings(subnet("10.0.0.0/24", interfaces=[held]))["leaked"]
    assert finding.verdict is Verdict.WARN
    assert finding.numbers == {"interfaces": 1, "addresses": 17}
    assert "eni-1" in finding.message


def test_a_subnet_with_ipv6_only_is_no_problem() -> None:
    [finding] = judge(listing(subnet("")))
    assert (finding.verdict, finding.message) == (Verdict.OK, "has IPv6 only")
