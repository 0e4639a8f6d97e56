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
from gpuctl.eks.cost import Price

NETWORK_BALANCER = "network load balancer"  # name of its price among those of instance types
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
    """A product of the Pricing API. `family`: "" for any. `usage`: pattern of its usage type, "" for any."""

    service: str
    attributes: Mapping[str, str]
    family: str = ""
    usage: str = ""

    def matches(self, plain: Mapping[str, Any], region: str) -> bool:
        """True for a row of exactly this product; KeyError for an answer that lacks its region."""
        attributes = plain["attributes"]
        if attributes["regionCode"] != region or (self.family and plain.get("productFamily") != self.family):
            return False
        if self.usage and not re.fullmatch(self.usage, str(attributes.get("usagetype"))):
            return False
        return all(attributes.get(key) == value for key, value in self.attributes.items())


# Source: AWS's published price list of AWSELB. Usage types have the region's short name, as EUW2-LoadBalancerUsage;
# with a further part (TS-, Outposts-) they are of something else.
BALANCER = Product(
    "AWSELB",
    {"operation": "LoadBalancing:Network", "locationType": "AWS Region"},
    "Load Balancer-Network",
    r"(?:[A-Z0-9]+-)?LoadBalancerUsage",
)


def product(name: str) -> Product:
    """The product of an instance type, or of a Network Load Balancer."""
    return BALANCER if name == NETWORK_BALANCER else Product("AmazonEC2", {"instanceType": name, **PLAIN_LINUX})


def request(region: str, name: str) -> dict[str, Any]:
    """Parameters of GetProducts for the price of an hour."""
    asked = product(name)
    fields = {"regionCode": region, **asked.attributes, **({"productFamily": asked.family} if asked.family else {})}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()]
    return {"ServiceCode": asked.service, "Filters": filters}


def price(products: Sequence[Any], region: str, name: str, today: date) -> Price:
    """The price of an instance type or load balancer; GpuctlError if the answer has none, or several different ones.

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
    if not product(name).matches(row["product"], region):
        return []
    rows = []
    for term in row["terms"].get("OnDemand", {}).values():
        day = date.fromisoformat(str(term["effectiveDate"])[:10])
        if day > today:
            continue
        for one in term["priceDimensions"].values():
            usd = float(one["pricePerUnit"].get("USD", 0))
            if one["unit"] == "Hrs" and usd > 0 and math.isfinite(usd):  # 0: a product that is not sold this way
                rows.append((usd, day))
    return rows
