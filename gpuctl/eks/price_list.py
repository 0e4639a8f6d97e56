"""Prices of AWS's Pricing API: what is asked, and the price that an answer gives without doubt."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.eks.cost import (
    APPLICATION_BALANCER,
    CLASSIC_BALANCER,
    DISK_GIB,
    NAT_GATEWAY,
    NETWORK_BALANCER,
    PUBLIC_ADDRESS,
    Price,
)

SOURCE = "AWS Pricing API"
# On-demand Linux without a licence of its own, on shared hardware; "Used": not what an unused reservation costs.
PLAIN_LINUX = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True)
class Product:
    """A product of the Pricing API. `family`: "" for any. `usage`: its usage type without the region's short name, ""
    for any. `unit`: of its price."""

    service: str
    attributes: Mapping[str, str]
    family: str = ""
    usage: str = ""
    unit: str = "Hrs"

    def matches(self, plain: Mapping[str, Any], region: str) -> bool:
        """True for a row of exactly this product; KeyError for an answer that lacks its region."""
        attributes = plain["attributes"]
        if attributes["regionCode"] != region or (self.family and plain.get("productFamily") != self.family):
            return False
        if self.usage and not re.fullmatch(SHORT_NAME + re.escape(self.usage), str(attributes.get("usagetype"))):
            return False
        return all(attributes.get(key) == value for key, value in self.attributes.items())


HOURS = {"Hrs": 1.0, "GB-Mo": 730.0}  # of a unit; AWS's own calculator has 730 hours in a month
# Source: AWS's published price lists of AWSELB, AmazonEC2 and AmazonVPC. Usage types have the region's short name, as
# EUW2-LoadBalancerUsage; with a further part (TS-, Outposts-, Regional) they are of something else.
SHORT_NAME = "(?:[A-Z0-9]+-)?"
IN_REGION = {"locationType": "AWS Region"}
PRODUCTS: Mapping[str, Product] = {
    NETWORK_BALANCER: Product(
        *("AWSELB", {"operation": "LoadBalancing:Network", **IN_REGION}, "Load Balancer-Network", "LoadBalancerUsage")
    ),
    APPLICATION_BALANCER: Product(
        *("AWSELB", {"operation": "LoadBalancing:Application", **IN_REGION}),
        *("Load Balancer-Application", "LoadBalancerUsage"),
    ),
    CLASSIC_BALANCER: Product(
        *("AWSELB", {"operation": "LoadBalancing", **IN_REGION}, "Load Balancer", "LoadBalancerUsage")
    ),
    NAT_GATEWAY: Product("AmazonEC2", {"operation": "NatGateway", **IN_REGION}, "NAT Gateway", "NatGateway-Hours"),
    PUBLIC_ADDRESS: Product("AmazonVPC", IN_REGION, "", "PublicIPv4:InUseAddress"),  # has no family
    DISK_GIB: Product(*("AmazonEC2", {"volumeApiName": "gp3", **IN_REGION}, "Storage", "EBS:VolumeUsage.gp3", "GB-Mo")),
}


def product(name: str) -> Product:
    """The product of a name in PRODUCTS, or of an instance type."""
    return PRODUCTS.get(name) or Product("AmazonEC2", {"instanceType": name, **PLAIN_LINUX})


def request(region: str, name: str) -> dict[str, Any]:
    """Parameters of GetProducts for a price."""
    asked = product(name)
    fields = {"regionCode": region, **asked.attributes, **({"productFamily": asked.family} if asked.family else {})}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()]
    if asked.usage:
        filters.append({"Type": "CONTAINS", "Field": "usagetype", "Value": asked.usage})
    return {"ServiceCode": asked.service, "Filters": filters}


def price(products: Sequence[Any], region: str, name: str, today: date) -> Price:
    """The price of an hour of an instance type or product; GpuctlError if the answer has none, or several of them.

    `products`: texts of JSON. Each is checked against what was asked, so that no other product's price is taken.
    """
    doing = f"read the price of {name} in {region}"
    try:
        rows = [row for text in products for row in _hourly(json.loads(text), region, name, today)]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise GpuctlError(doing, f"AWS's answer does not fit: {type(error).__name__.lower()} {error}") from error
    values = sorted({usd for usd, _ in rows})
    if not values:
        raise GpuctlError(doing, "the Pricing API lists no on-demand price of it in USD", "check the type and region")
    if len(values) > 1:
        listed = ", ".join(f"{usd:g}" for usd in values)
        raise GpuctlError(doing, f"the Pricing API lists several prices of it: {listed} USD")
    since = max(day for _, day in rows)
    return Price(values[0], today, f"{SOURCE} (in effect since {since})")


def _hourly(row: Mapping[str, Any], region: str, name: str, today: date) -> list[tuple[float, date]]:
    """USD an hour of a product's on-demand terms, and the day since which each is in effect."""
    asked = product(name)
    if not asked.matches(row["product"], region):
        return []
    rows = []
    for term in row["terms"].get("OnDemand", {}).values():
        day = date.fromisoformat(str(term["effectiveDate"])[:10])
        if day > today:
            continue
        for one in term["priceDimensions"].values():
            usd = float(one["pricePerUnit"].get("USD", 0))
            # A row of 0 USD is of a product that is not sold this way.
            if one["unit"] == asked.unit and usd > 0 and math.isfinite(usd):
                rows.append((usd / HOURS[asked.unit], day))
    return rows
