"""Prices of AWS's Pricing API: what is asked, and the price that an answer gives without doubt."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.eks.cost import Price

SERVICE = "AmazonEC2"
SOURCE = "AWS Pricing API"
# On-demand Linux without a licence of its own, on shared hardware; "Used": not what an unused reservation costs.
PLAIN_LINUX = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


def filters(region: str, name: str) -> list[dict[str, str]]:
    """Filters of GetProducts for the on-demand price of an instance type."""
    fields = {"regionCode": region, "instanceType": name, **PLAIN_LINUX}
    return [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()]


def price(products: Sequence[Any], region: str, name: str, today: date) -> Price:
    """The price of an instance type; GpuctlError if the answer has none, or several different ones.

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


def _hourly(product: Mapping[str, Any], region: str, name: str, today: date) -> list[tuple[float, date]]:
    """USD an hour of a product's on-demand terms, and the day since which each is in effect."""
    attributes = product["product"]["attributes"]
    if (attributes["regionCode"], attributes["instanceType"]) != (region, name):
        return []
    if any(attributes.get(key) != value for key, value in PLAIN_LINUX.items()):
        return []
    rows = []
    for term in product["terms"].get("OnDemand", {}).values():
        day = date.fromisoformat(str(term["effectiveDate"])[:10])
        if day > today:
            continue
        for one in term["priceDimensions"].values():
            usd = float(one["pricePerUnit"].get("USD", 0))
            if one["unit"] == "Hrs" and usd > 0 and math.isfinite(usd):  # 0: a product that is not sold this way
                rows.append((usd, day))
    return rows
