"""Cost of clusters that exist: an hour, until now and until the end of their time to live, by cluster and by owner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Number, Verdict, unknown_because
from gpuctl.eks import removal, status
from gpuctl.eks.cost import Cost, Prices
from gpuctl.eks.objects import Kind, Object, State, costly
from gpuctl.eks.price_list import NETWORK_BALANCER

OWNER_TAGS = ("owner", "Owner")
NO_OWNER = "no owner"
NO_PRICE = "gpuctl has no price of it"
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
        rows.append(Part(Cost(removal.plural(kind), None, f"not searched: {error}"), None))
    rows += _balancers(others.pop(Kind.LOAD_BALANCER, ()), prices, state.region, now)
    rows += [Part(_unpriced(kind, several, NO_PRICE), None) for kind, several in others.items()]
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


def _balancers(several: Sequence[Object], prices: Prices, region: str, now: datetime) -> list[Part]:
    """Network Load Balancers with their price, and others without; all without if the price is not known.

    The price is that of their hours: traffic, and public IPv4 addresses, cost beside it.
    """
    price = prices.of(region, NETWORK_BALANCER)
    network = [one for one in several if price is not None and one.data.get("Type") == "network"]
    others = [one for one in several if one not in network]
    parts = [Part(_unpriced(Kind.LOAD_BALANCER, others, NO_PRICE), None)] if others else []
    if price is not None and network:
        spent = [status.until_now(price.usd, one.data.get("CreatedTime"), now) for one in network]
        known = [one for one in spent if one is not None]
        cost = Cost(plural(len(network), NETWORK_BALANCER), price.usd * len(network), price.origin(now.date()))
        parts.append(Part(cost, sum(known) if len(known) == len(spent) else None))
        is_public = any(one.data.get("Scheme") != "internal" for one in network)
        beside = "traffic and public addresses" if is_public else "traffic"
        parts.append(Part(Cost(f"{beside} of {cost.part}", None, NO_PRICE), None))
    return parts


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
