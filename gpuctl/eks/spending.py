"""Cost of clusters that exist: an hour, until now and until the end of their time to live, by cluster and by owner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Number, Verdict, unknown_because
from gpuctl.eks import removal, status
from gpuctl.eks.cost import (
    APPLICATION_BALANCER,
    CLASSIC_BALANCER,
    DISK_GIB,
    NAT_GATEWAY,
    NETWORK_BALANCER,
    PUBLIC_ADDRESS,
    Cost,
    Price,
    Prices,
)
from gpuctl.eks.objects import Kind, Object, State, costly

OWNER_TAGS = ("owner", "Owner")
NO_OWNER = "no owner"
NO_PRICE = "gpuctl has no price of it"
# Type of a load balancer, which a Classic one has not -> name of its price.
BALANCERS = {"network": NETWORK_BALANCER, "application": APPLICATION_BALANCER, "": CLASSIC_BALANCER}
INCLUDED_IOPS, INCLUDED_MIBS = 3000, 125  # in the price of gp3; more costs beside it
PRICED = frozenset({Kind.CLUSTER, Kind.GROUP, Kind.INSTANCE})  # a node group costs what its instances cost


@dataclass(frozen=True)
class Part:
    """A part of a cluster that costs money: USD an hour, and at least until now; None where it is not known."""

    cost: Cost
    spent: float | None


@dataclass(frozen=True)
class Spending:
    """Parts of a cluster, or the error that kept them from being read. `end`: of its time to live; None for none."""

    cluster: str
    region: str
    owner: str
    end: datetime | None
    parts: Sequence[Part] | GpuctlError

    @property
    def subject(self) -> str:
        return f"{self.cluster} in {self.region}"

    @property
    def known(self) -> Sequence[Part]:
        return () if isinstance(self.parts, GpuctlError) else self.parts


@dataclass(frozen=True)
class Sum:
    """USD an hour, until now and from now to the end. None: nothing is known, or for `until_end` also that there is
    no end to come. `spent` is a lower bound, as only what runs now is counted; the others only if not `is_whole`."""

    hour: float | None
    spent: float | None
    until_end: float | None
    is_whole: bool

    def bounded(self, value: float | None) -> str:
        """Text of `hour` or `until_end`."""
        return usd(value) if self.is_whole else at_least(value)


def owner(tags: Mapping[str, str]) -> str:
    """Owner by the tag `owner` of the cluster file; "" for none."""
    return next((tags[name] for name in OWNER_TAGS if tags.get(name)), "")


def parts(
    state: State, around: removal.Belongings, versions: status.Versions, prices: Prices, now: datetime
) -> list[Part]:
    """Everything of a cluster that costs money. `around`: instances, load balancers, volumes and endpoints near it."""
    near = [one for one in around.objects if _is_of(one, around, state.cluster)]
    instances = [one for one in near if one.kind is Kind.INSTANCE]
    rows = [Part(one, spent) for one, spent in status.costs(state, instances, versions, prices, now)]
    others: dict[Kind, list[Object]] = {}
    for one in costly([*state.objects, *near]):
        if one.kind not in PRICED and (one.kind, one.state) != (Kind.NAT, "failed"):
            others.setdefault(one.kind, []).append(one)
    for kind, error in around.unread.items():
        rows.append(Part(Cost(removal.named_kind(kind), None, f"not searched: {error}"), None))
    for several in others.values():
        rows += _others(several, prices, state.region, now)
    for kind in (Kind.VOLUME, Kind.SNAPSHOT):
        if unsure := [one for one in around.of(kind) if one.name in around.unassigned and one not in near]:
            cost = _unpriced(kind, unsure, "no tag or node says whether it is of this cluster")
            rows.append(Part(replace(cost, part=f"{cost.part}, perhaps not of it"), None))
    return rows


def _is_of(item: Object, around: removal.Belongings, cluster: str) -> bool:
    """True for an object of the cluster; instances of others may run in its VPC."""
    if item.ours or removal.is_tagged(item, cluster):
        return True
    return item.kind is not Kind.INSTANCE and removal.is_of(item, around, cluster)


def _others(several: Sequence[Object], prices: Prices, region: str, now: datetime) -> list[Part]:
    """Objects of one kind: those without a price together, and then the others by their product.

    A price is that of hours: traffic, and public IPv4 addresses of load balancers, cost beside it.
    """
    priced: dict[str, list[Object]] = {}
    unpriced = []
    for one in several:
        name = _product(one)
        if prices.of(region, name) is None:
            unpriced.append(one)
        else:
            priced.setdefault(name, []).append(one)
    parts = [Part(_unpriced(unpriced[0].kind, unpriced, NO_PRICE), None)] if unpriced else []
    for name, items in priced.items():
        price = prices.of(region, name)
        if price is not None:
            parts += _priced(name, items, price, now)
    return parts


def _priced(name: str, several: Sequence[Object], price: Price, now: datetime) -> list[Part]:
    """Objects of one product, and what costs beside their hours."""
    kind = several[0].kind
    usd = [price.usd * (int(one.data.get("Size") or 0) if kind is Kind.VOLUME else 1) for one in several]
    spent = [status.until_now(hour, _start(one), now) for hour, one in zip(usd, several, strict=True)]
    known = [one for one in spent if one is not None]
    title = plural(len(several), name) if kind is Kind.LOAD_BALANCER else _unpriced(kind, several, "").part
    cost = Cost(title, math.fsum(usd), price.origin(now.date()))
    parts = [Part(cost, sum(known) if len(known) == len(spent) else None)]
    if kind in (Kind.LOAD_BALANCER, Kind.NAT):
        is_public = kind is Kind.LOAD_BALANCER and any(one.data.get("Scheme") != "internal" for one in several)
        beside = "traffic and public addresses" if is_public else "traffic"
        parts.append(Part(Cost(f"{beside} of {title}", None, NO_PRICE), None))
    return parts


def _start(item: Object) -> Any:
    return item.data.get("CreatedTime") or item.data.get("CreateTime")


def _product(item: Object) -> str:
    """Name of the price of an object; "" if none of the prices fits it."""
    if item.kind is Kind.LOAD_BALANCER:
        return BALANCERS.get(str(item.data.get("Type") or ""), "")
    if item.kind is Kind.NAT:
        return NAT_GATEWAY if item.data.get("ConnectivityType") != "private" else ""
    if item.kind is Kind.ADDRESS:
        is_of_amazon = item.data.get("PublicIpv4Pool", "amazon") == "amazon"  # addresses of one's own cost nothing
        return PUBLIC_ADDRESS if item.data.get("AssociationId") and is_of_amazon else ""
    if item.kind is Kind.VOLUME and item.data.get("VolumeType") == "gp3":
        iops, throughput = item.data.get("Iops"), item.data.get("Throughput")
        is_plain = int(iops or 0) <= INCLUDED_IOPS and int(throughput or 0) <= INCLUDED_MIBS
        return DISK_GIB if is_plain else ""
    return ""


def _unpriced(kind: Kind, several: Sequence[Object], why: str) -> Cost:
    gib = sum(int(one.data.get("Size") or 0) for one in several)
    size = f", {gib} GiB" if kind is Kind.VOLUME else ""
    return Cost(f"{plural(len(several), str(kind))}{size}", None, why)


def total(one: Spending, now: datetime) -> Sum:
    """Sum of a cluster."""
    if isinstance(one.parts, GpuctlError):
        return Sum(None, None, None, is_whole=False)
    hour, is_whole = _added(part.cost.usd_hour for part in one.known)
    spent, _ = _added(part.spent for part in one.known)
    left = None if one.end is None or one.end <= now else (one.end - now).total_seconds() / 3600
    until = None if left is None or hour is None else hour * left
    return Sum(hour, spent, until, is_whole)


def by_owner(clusters: Sequence[Spending], now: datetime) -> dict[str, Sum]:
    """Sum of each owner. `until_end` is None if a cluster of the owner has no end to come."""
    owned: dict[str, list[Sum]] = {}
    for one in clusters:
        owned.setdefault(one.owner or NO_OWNER, []).append(total(one, now))
    sums = {}
    for name, several in sorted(owned.items()):
        ends = [one.until_end for one in several]
        sums[name] = Sum(
            _added(one.hour for one in several)[0],
            _added(one.spent for one in several)[0],
            None if None in ends else _added(ends)[0],
            all(one.is_whole for one in several),
        )
    return sums


def _added(values: Iterable[float | None]) -> tuple[float | None, bool]:
    """Sum of the known values, None if there are only unknown ones; True if all are known."""
    listed = list(values)
    known = [one for one in listed if one is not None]
    return (math.fsum(known) if known or not listed else None), len(known) == len(listed)


def judge(clusters: Sequence[Spending], now: datetime) -> list[Finding]:
    """A finding on each cluster: its cost, and the parts whose cost is not known."""
    findings = []
    for one in clusters:
        if isinstance(one.parts, GpuctlError):
            findings.append(unknown_because("cost", one.subject, one.parts))
            continue
        whole = total(one, now)
        missing = [part.cost.part for part in one.parts if part.cost.usd_hour is None or part.spent is None]
        values = {"usd_hour": whole.hour, "usd_at_least": whole.spent}
        numbers: dict[str, Number] = {key: round(value, 2) for key, value in values.items() if value is not None}
        hour, spent = whole.bounded(whole.hour), at_least(whole.spent)
        message = f"{hour} USD an hour, {spent} until now, {_until(one, whole, now)}"
        text = f"{message}; UNKNOWN: {named(missing)}" if missing else message
        verdict, hint = _verdict(one, now)
        if missing and verdict is Verdict.OK:
            verdict, hint = Verdict.WARN, "look at the bill: AWS Cost Explorer"
        findings.append(Finding("cost", one.subject, verdict, text, numbers, hint))
    return findings


def _verdict(one: Spending, now: datetime) -> tuple[Verdict, str]:
    """Verdict and hint by the end of the time to live, as of the finding `ttl`."""
    if one.end is None:
        return Verdict.WARN, "set `ttl`, or destroy it yourself"
    if one.end <= now:
        return Verdict.FAIL, "`gpuctl eks reap`, or `gpuctl eks destroy`"
    return Verdict.OK, ""


def _until(one: Spending, whole: Sum, now: datetime) -> str:
    if one.end is None:
        return "and no time to live is set"
    if one.end <= now:
        return f"and its time to live ended at {one.end:%Y-%m-%d %H:%M} UTC"
    return f"{whole.bounded(whole.until_end)} more until {one.end:%Y-%m-%d %H:%M} UTC"


def usd(value: float | None) -> str:
    return "UNKNOWN" if value is None else f"{value:.2f}"


def at_least(value: float | None) -> str:
    return usd(value) if value is None else f"at least {usd(value)}"
