"""Prices of AWS's Pricing API: only the price of exactly what was asked is taken, and no other is guessed."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.eks import price_list
from gpuctl.eks.cost import (
    APPLICATION_BALANCER,
    CLASSIC_BALANCER,
    DISK_GIB,
    NAT_GATEWAY,
    NETWORK_BALANCER,
    PUBLIC_ADDRESS,
    Price,
    Prices,
)
from gpuctl.eks.price_list import PLAIN_LINUX, price
from tests.rig.eks_answers import balancer, product

TODAY = date(2026, 11, 28)


def of(*products: Any) -> Price:
    return price(products, "us-west-2", "g4dn.xlarge", TODAY)


def test_a_price_has_the_day_and_since_when_it_is_in_effect() -> None:
    assert of(product()) == Price(0.6, TODAY, "AWS Pricing API (in effect since 2026-11-01)")


def test_other_products_do_not_count() -> None:
    others = [product("9", operatingSystem="Windows"), product("9", unit="Quantity"), product("0.0")]
    assert of(*others, product("8", region="us-east-1"), product("0.6"), product("0.6")).usd == 0.6


@pytest.mark.parametrize(
    ("products", "words"),
    [
        ([], "no on-demand price"),
        ([product("0.0")], "no on-demand price"),
        ([product("nan")], "no on-demand price"),
        ([product("0.5"), product("0.6")], "several prices of it: 0.5, 0.6 USD"),
        (["not JSON"], "does not fit"),
        (["[]"], "does not fit"),
        (['{"product": {}}'], "does not fit"),
        ([json.dumps({**json.loads(product()), "terms": {}})], "no on-demand price"),
    ],
)
def test_no_price_is_guessed(products: list[str], words: str) -> None:
    with pytest.raises(GpuctlError) as caught:
        of(*products)
    assert words in caught.value.wrong


@pytest.mark.parametrize("missing", PLAIN_LINUX)
def test_a_product_that_does_not_say_what_it_is_is_not_taken(missing: str) -> None:
    plain = json.loads(product())
    del plain["product"]["attributes"][missing]
    with pytest.raises(GpuctlError, match="no on-demand price"):
        of(json.dumps(plain))


def test_the_price_of_a_later_day_is_not_that_of_today() -> None:
    later = product("0.9").replace("2026-11-01", "2026-12-01")
    assert of(product("0.6"), later).usd == 0.6
    with pytest.raises(GpuctlError, match="no on-demand price"):
        of(later)


def test_the_newer_of_two_prices_counts_and_a_region_has_its_own() -> None:
    def prices(day: date) -> Prices:
        listed = {(region, "g4dn.xlarge"): Price(0.6, day, "AWS") for region in ("us-east-1", "eu-west-1")}
        return Prices("us-east-1", date(2026, 7, 20), "carried", {"g4dn.xlarge": 0.5, "p5.48xlarge": 55}, listed)

    def usd(made: Prices, region: str, name: str = "g4dn.xlarge") -> float | None:
        found = made.of(region, name)
        return found.usd if found else None

    assert [usd(prices(TODAY), one) for one in ("us-east-1", "eu-west-1", "eu-west-2")] == [0.6, 0.6, None]
    assert usd(prices(date(2026, 1, 1)), "us-east-1") == 0.5
    assert [usd(prices(TODAY), one, "p5.48xlarge") for one in ("us-east-1", "eu-west-1")] == [55, None]


def test_the_age_of_a_price_is_part_of_its_origin() -> None:
    assert Price(1, date(2026, 11, 27), "AWS").origin(TODAY) == "AWS, 2026-11-27, 1 day old"
    assert Price(1, TODAY, "AWS").origin(TODAY) == "AWS, 2026-11-28"


def test_the_price_of_a_network_load_balancer_is_that_of_its_hours_in_a_region() -> None:
    others = [
        balancer("9", "USW2-TS-LoadBalancerUsage"),
        balancer("9", "USW2-LCUUsage"),
        balancer("9", "USW2-LoadBalancerUsage", "Load Balancer-Application"),
        balancer("9", operation="LoadBalancing:Gateway"),
        balancer("9", locationType="AWS Outposts"),
    ]
    for usage in ("USW2-LoadBalancerUsage", "LoadBalancerUsage"):
        listed = [*others, balancer("0.0225", usage)]
        assert price(listed, "us-west-2", NETWORK_BALANCER, TODAY).usd == 0.0225
    with pytest.raises(GpuctlError, match="no on-demand price"):
        price(others, "us-west-2", NETWORK_BALANCER, TODAY)


@pytest.mark.parametrize(
    ("name", "row", "others"),
    [
        (
            APPLICATION_BALANCER,
            balancer("7.3", family="Load Balancer-Application", operation="LoadBalancing:Application"),
            [balancer("9"), balancer("9", family="Load Balancer", operation="LoadBalancing")],
        ),
        (
            CLASSIC_BALANCER,
            balancer("7.3", family="Load Balancer", operation="LoadBalancing"),
            [balancer("9"), balancer("9", "USW2-DataProcessing-Bytes", "Load Balancer", operation="LoadBalancing")],
        ),
        (
            NAT_GATEWAY,
            balancer("7.3", "USW2-NatGateway-Hours", "NAT Gateway", operation="NatGateway"),
            [
                balancer("9", "USW2-RegionalNatGateway-Hours", "NAT Gateway", operation="NatGateway"),
                balancer("9", "USW2-NatGateway-Bytes", "NAT Gateway", operation="NatGateway"),
            ],
        ),
        (
            PUBLIC_ADDRESS,
            balancer("7.3", "USW2-PublicIPv4:InUseAddress", ""),
            [balancer("9", "USW2-PublicIPv4:IdleAddress", ""), balancer("9", "PublicIPv4:InUseAddress", region="eu")],
        ),
    ],
)
def test_the_price_of_each_product_is_that_of_its_row(name: str, row: str, others: list[str]) -> None:
    assert price([*others, row], "us-west-2", name, TODAY).usd == 7.3
    with pytest.raises(GpuctlError, match="no on-demand price"):
        price(others, "us-west-2", name, TODAY)


def test_the_price_of_a_disk_is_of_a_month_and_is_divided_by_its_hours() -> None:
    usage, api = "USW2-EBS:VolumeUsage.gp3", {"volumeApiName": "gp3"}
    row = balancer("0.073", usage, "Storage", unit="GB-Mo", **api)
    others = [
        balancer("9", usage, "Storage", **api),  # of another unit
        balancer("9", "USW2-EBS:VolumeP-IOPS.gp3", "System Operation", unit="IOPS-Mo", **api),
        balancer("9", "USW2-EBS:VolumeUsage.gp2", "Storage", unit="GB-Mo", volumeApiName="gp2"),
    ]
    assert price([*others, row], "us-west-2", DISK_GIB, TODAY).usd == pytest.approx(0.0001)


def test_each_product_is_asked_of_its_service() -> None:
    asked = {name: price_list.request("us-west-2", name) for name in ("g4dn.xlarge", NETWORK_BALANCER)}
    assert [one["ServiceCode"] for one in asked.values()] == ["AmazonEC2", "AWSELB"]
    fields = {one["Field"]: one["Value"] for one in asked[NETWORK_BALANCER]["Filters"]}
    assert fields == {
        "regionCode": "us-west-2",
        "operation": "LoadBalancing:Network",
        "locationType": "AWS Region",
        "productFamily": "Load Balancer-Network",
        "usagetype": "LoadBalancerUsage",
    }
