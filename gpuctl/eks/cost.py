"""Cost of a cluster by part, and its budget: a sum only where every price is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Number, Verdict, fail, unknown, warn
from gpuctl.eks.facts import Facts, Reservation
from gpuctl.eks.model import Capacity, EksCluster, NodeGroup

# Names of prices among those of instance types.
NETWORK_BALANCER, APPLICATION_BALANCER = "network load balancer", "application load balancer"
CLASSIC_BALANCER, NAT_GATEWAY, PUBLIC_ADDRESS = "Classic Load Balancer", "NAT gateway", "public IPv4 address"
DISK_GIB = "GiB of gp3"
CONTROL_PLANE_USD, EXTENDED_USD = 0.10, 0.60  # an hour. Source: Amazon EKS pricing


@dataclass(frozen=True)
class Price:
    """USD an hour, the day on which it was valid, and its source."""

    usd: float
    day: date
    source: str

    def origin(self, today: date) -> str:
        """Source, date and age."""
        days = (today - self.day).days
        return f"{self.source}, {self.day}" + (f", {plural(days, 'day')} old" if days > 0 else "")


@dataclass(frozen=True)
class Prices:
    """On-demand prices of instance types: those that gpuctl carries, of one region, and ones that AWS listed later.

    `listed`: (region, type) -> price. `damage`: the error that kept stored ones from being read.
    """

    region: str
    day: date
    source: str
    usd: Mapping[str, float]
    listed: Mapping[tuple[str, str], Price] = field(default_factory=dict)
    damage: GpuctlError | None = None

    def of(self, region: str, name: str) -> Price | None:
        """The newest price of a type in a region; None for none."""
        listed = self.listed.get((region, name))
        if region != self.region or name not in self.usd:
            return listed
        carried = Price(self.usd[name], self.day, self.source)
        return listed if listed is not None and listed.day >= carried.day else carried


@dataclass(frozen=True)
class Cost:
    """Cost of one part an hour; None if its price is not known, `why` says why. `is_beside`: small beside the nodes, so
    that the sum without it is still a lower bound worth knowing."""

    part: str
    usd_hour: float | None
    why: str
    is_beside: bool = False


def costs(cluster: EksCluster, facts: Facts, prices: Prices) -> list[Cost]:
    """Cost of the control plane, of each group at its desired size, and of disks and network beside them.

    Not counted are traffic, load balancers, and public addresses of nodes.
    """
    reserved = {} if isinstance(facts.reservations, GpuctlError) else dict(facts.reservations)
    parts = [_control_plane(cluster, facts)]
    paid_by: dict[str, str] = {}
    for group in cluster.node_groups:
        first = paid_by.setdefault(group.reservation, group.name) if group.reservation else group.name
        one = reserved.get(group.reservation)
        parts.append(_cost(group, cluster, facts, prices, one) if first == group.name else _shared(group, first))
    return [*parts, *_beside(cluster, facts, prices)]


def _beside(cluster: EksCluster, facts: Facts, prices: Prices) -> list[Cost]:
    """Disks of nodes, and of a VPC of its own the NAT gateway with its address."""
    gib = sum(group.desired * group.disk_gib for group in cluster.node_groups)
    rows = [(f"disks of nodes: {gib} GiB of gp3", DISK_GIB, gib)] if gib else []
    if not cluster.subnets:
        rows += [("NAT gateway", NAT_GATEWAY, 1), ("public address of the NAT gateway", PUBLIC_ADDRESS, 1)]
    parts = []
    for part, name, count in rows:
        price = prices.of(cluster.region, name)
        if price is None:
            parts.append(
                Cost(part, None, f"no price of it in {cluster.region} is known: --prices asks AWS", is_beside=True)
            )
        else:
            parts.append(Cost(part, price.usd * count, price.origin(facts.now.date()), is_beside=True))
    return parts


def _shared(group: NodeGroup, first: str) -> Cost:
    return Cost(f"{group.name}: {group.desired} {group.instance_type}", 0.0, f"counted with {first}")


def _control_plane(cluster: EksCluster, facts: Facts) -> Cost:
    versions = [] if isinstance(facts.versions, GpuctlError) else facts.versions
    one = next((one for one in versions if one.name == cluster.version), None)
    if one is None or one.standard_end is None:
        return Cost("control plane", None, "whether the version has standard support is not known")
    extended = one.standard_end <= facts.now.date()
    return Cost("control plane", EXTENDED_USD if extended else CONTROL_PLANE_USD, "Amazon EKS pricing")


def _cost(group: NodeGroup, cluster: EksCluster, facts: Facts, prices: Prices, reserved: Reservation | None) -> Cost:
    part = f"{group.name}: {group.desired} {group.instance_type}"
    if group.capacity is Capacity.SPOT:
        return Cost(part, None, "spot prices change from hour to hour")
    if group.capacity is Capacity.BLOCK:
        return Cost(part, 0.0, "paid when the block was bought")
    if facts.tenancy != "default":
        known = "not known" if isinstance(facts.tenancy, GpuctlError) else facts.tenancy
        return Cost(part, None, f"the tenancy of the VPC is {known}, and the prices are those of shared hardware")
    price = prices.of(cluster.region, group.instance_type)
    if price is None:
        return Cost(part, None, f"no price of it in {cluster.region} is known: --prices asks AWS")
    source = price.origin(facts.now.date())
    if group.capacity is Capacity.RESERVATION:
        return _reserved(part, price.usd, reserved, source)
    return Cost(part, price.usd * group.desired, source)


def _reserved(part: str, price: float, reserved: Reservation | None, source: str) -> Cost:
    if reserved is None:
        return Cost(part, None, "the size of its reservation is not known")
    return Cost(part, price * reserved.total, f"of {reserved.total} reserved, used or not; {source}")


def priced(cluster: EksCluster) -> list[str]:
    """Types whose on-demand price is used: not those on spot or on a block."""
    uses = (Capacity.ON_DEMAND, Capacity.RESERVATION)
    return sorted({group.instance_type for group in cluster.node_groups if group.capacity in uses})


def price_day(cluster: EksCluster, prices: Prices) -> date | None:
    """The oldest date of the prices that are used; None if none has a price."""
    used = [prices.of(cluster.region, name) for name in priced(cluster)]
    return min((one.day for one in used if one is not None), default=None)


def total(parts: Sequence[Cost]) -> float | None:
    """Sum an hour of the parts with a price; None if a part that is not small has none."""
    if any(part.usd_hour is None and not part.is_beside for part in parts):
        return None
    return math.fsum(part.usd_hour or 0.0 for part in parts)


def uncounted(parts: Sequence[Cost]) -> list[str]:
    """Small parts without a price: with any, the sum is a lower bound."""
    return [part.part for part in parts if part.is_beside and part.usd_hour is None]


def budget(cluster: EksCluster, parts: Sequence[Cost]) -> list[Finding]:
    """The budget against the cost until the end of the time to live."""
    if cluster.budget_usd is None:
        return []
    hourly = total(parts)
    if hourly is None or cluster.ttl_hours is None:
        reason = "a price is not known" if hourly is None else "the file has no ttl"
        return [unknown("budget", cluster.name, f"the cost is not known: {reason}", budget_usd=cluster.budget_usd)]
    cost = round(hourly * cluster.ttl_hours, 2)
    numbers: dict[str, Number] = {"cost_usd": cost, "budget_usd": cluster.budget_usd}
    if cost > cluster.budget_usd:
        message = f"{cost:.2f} USD until its end, and the budget is {cluster.budget_usd:g} USD"
        return [fail("budget", cluster.name, message, "lower desired or ttl, or raise budget_usd", **numbers)]
    if missing := uncounted(parts):
        message = f"at least {cost:.2f} of {cluster.budget_usd:g} USD, without {named(missing)}"
        return [warn("budget", cluster.name, message, "ask AWS for their prices: --prices", **numbers)]
    return [Finding("budget", cluster.name, Verdict.OK, f"{cost:.2f} of {cluster.budget_usd:g} USD", numbers)]
