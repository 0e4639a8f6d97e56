"""Findings about a cluster that does not exist yet: what AWS would refuse, and what could not be known."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.eks_zones import NO_CONTROL_PLANE
from gpuctl.domain.findings import Finding, Number, Verdict, fail, ok, unknown, warn
from gpuctl.eks.model import Capacity, EksCluster, NodeGroup

END_OF_BLOCK = timedelta(minutes=30)  # before its end EC2 ends the instances of a block
SCALE_DOWN = timedelta(minutes=40)  # before its end EKS scales a group on a block down
SOON = timedelta(days=60)
# Quotas of running vCPUs by the first letters of instance types: names of Service Quotas, as sources differ on some of
# its codes.
ON_DEMAND_QUOTAS: Mapping[str, str] = {
    "trn": "Running On-Demand Trn instances",
    "inf": "Running On-Demand Inf instances",
    "dl": "Running On-Demand DL instances",
    "vt": "Running On-Demand G and VT instances",
    "g": "Running On-Demand G and VT instances",
    "p": "Running On-Demand P instances",
    "x": "Running On-Demand X instances",
    "hpc": "Running On-Demand HPC instances",
    "f": "Running On-Demand F instances",
    "u": "Running On-Demand High Memory instances",
}
VPC_QUOTA, ADDRESS_QUOTA = "VPCs per Region", "EC2-VPC Elastic IPs"
SPREAD = 7  # instances of a spread placement group in a zone, by EC2
DEFAULT_ZONES = 3  # zones of a VPC of its own
CONTROL_PLANE_FREE = 6  # addresses that EKS needs in each subnet of a cluster
STANDARD = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
SPOT_QUOTAS: Mapping[str, str] = {
    "g": "All G and VT Spot Instance Requests",
    "vt": "All G and VT Spot Instance Requests",
    "p5": "All P5 Spot Instance Requests",
    "p4": "All P4, P3 and P2 Spot Instance Requests",
    "p3": "All P4, P3 and P2 Spot Instance Requests",
    "p2": "All P4, P3 and P2 Spot Instance Requests",
    "trn": "All Trn Spot Instance Requests",
    "inf": "All Inf Spot Instance Requests",
    "x": "All X Spot Instance Requests",
    "f": "All F Spot Instance Requests",
    **dict.fromkeys("acdhimrtz", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
    **dict.fromkeys(("dl", "hpc", "mac"), ""),
}


@dataclass(frozen=True)
class Type:
    """An instance type. `architecture`: x86_64 or arm64. `zones`: ids of the zones that offer it."""

    name: str
    vcpus: int
    architecture: str
    zones: frozenset[str]


@dataclass(frozen=True)
class Version:
    """A version of Kubernetes at EKS. `standard_end`, `extended_end`: None if AWS names no date."""

    name: str
    standard_end: date | None
    extended_end: date | None


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or block. `start`, `end`: None if AWS names no time. `group`: ARN of the placement group
    that it was made in, "" for none."""

    name: str
    state: str
    instance_type: str
    zone_id: str
    available: int
    total: int
    is_block: bool
    group: str = ""
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class PlacementGroup:
    name: str
    strategy: str
    state: str


@dataclass(frozen=True)
class Facts:
    """Everything that AWS was asked; an error in place of what it refused.

    `quotas`, `vpc_quotas`: name -> value. `running`: vCPUs by type of running on-demand instances and of unused
    reservations, `running_spot`: of spot instances. `subnet_zones`: subnet -> zone id, `subnet_vpcs`: their VPCs.
    `vpcs`, `elastic_ips`: how many there are. `simulated`: action -> IAM's decision on it, by a simulation.
    """

    now: datetime
    cluster: str | GpuctlError  # status of a cluster with this name, "" for none
    versions: Sequence[Version] | GpuctlError
    types: Mapping[str, Type | GpuctlError]
    quotas: Mapping[str, float] | GpuctlError
    running: Mapping[str, int] | GpuctlError
    reservations: Mapping[str, Reservation] | GpuctlError = field(default_factory=dict)
    placement_groups: Mapping[str, PlacementGroup] | GpuctlError = field(default_factory=dict)
    subnet_zones: Mapping[str, str] | GpuctlError = field(default_factory=dict)
    subnet_vpcs: Sequence[str] = ()
    vpc_quotas: Mapping[str, float] | GpuctlError = field(default_factory=dict)
    running_spot: Mapping[str, int] | GpuctlError = field(default_factory=dict)
    vpcs: int | GpuctlError = 0
    elastic_ips: int | GpuctlError = 0
    simulated: Mapping[str, str] | GpuctlError = field(default_factory=dict)


def predict(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Findings in the order in which AWS would meet them; an OK for what nothing speaks against."""
    findings = [*permissions(facts), *name(cluster, facts), *version(cluster, facts), *zones(cluster, facts)]
    for group in cluster.node_groups:
        findings += offer(group, cluster, facts)
        findings += image(group, facts)
        findings += reservation(group, cluster, facts)
        findings += placement(group, cluster, facts)
    return [*findings, *quota(cluster, facts), *limits(cluster, facts)]


def actions(cluster: EksCluster) -> list[str]:
    """IAM actions of all calls that make the cluster, beside those that read."""
    names = ["eks:CreateCluster", "eks:CreateNodegroup", "eks:TagResource", "iam:CreateRole", "iam:AttachRolePolicy"]
    names += ["iam:PassRole", "ec2:CreateLaunchTemplate", "ec2:RunInstances", "ec2:CreateTags"]
    names += ["eks:CreateAddon"] if cluster.addons else []
    names += ["eks:CreateAccessEntry", "eks:AssociateAccessPolicy"] if cluster.admins else []
    if cluster.vpc is not None:
        names += ["ec2:CreateVpc", "ec2:CreateSubnet", "ec2:CreateRouteTable", "ec2:CreateInternetGateway"]
        names += ["ec2:CreateNatGateway", "ec2:AllocateAddress"]
    names += ["ec2:CreatePlacementGroup"] if any(one.placement == "cluster" for one in cluster.node_groups) else []
    return names


def permissions(facts: Facts) -> list[Finding]:
    """IAM's decisions; an action that it allows for some resources only may be allowed for ours."""
    if isinstance(facts.simulated, GpuctlError):
        return [_unread("permissions", "", facts.simulated)]
    denied = [name for name, decision in facts.simulated.items() if decision == "explicitDeny"]
    unsure = [name for name, decision in facts.simulated.items() if decision not in ("allowed", "explicitDeny")]
    found = []
    if denied:
        message = f"a policy denies {named(denied, 8)}"
        found.append(fail("permissions", "", message, "have them allowed, or log in as another"))
    if unsure:
        message = f"no policy allows {named(unsure, 8)} for every resource; one may for those of this cluster"
        found.append(unknown("permissions", "", message, "compare the policies of this login, or have them allowed"))
    return found or [ok("permissions", "", f"{len(facts.simulated)} actions are allowed, by a simulation")]


def limits(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Limits of what a VPC of its own needs: one VPC, and one address for its NAT gateway."""
    if cluster.vpc is None:
        return []
    return [
        _limit(VPC_QUOTA, facts.vpcs, facts),
        _limit(ADDRESS_QUOTA, facts.elastic_ips, facts),
    ]


def _limit(which: str, used: int | GpuctlError, facts: Facts) -> Finding:
    quotas = facts.vpc_quotas if which == VPC_QUOTA else facts.quotas
    if isinstance(quotas, GpuctlError):
        return _unread("limit", which, quotas)
    if isinstance(used, GpuctlError):
        return _unread("limit", which, used)
    most = quotas.get(which)
    if most is None:
        return unknown("limit", which, "Service Quotas does not list it", "look at Service Quotas", used=used)
    if used + 1 > most:
        message = f"{used} of {most:g} are used, and one more is needed"
        return fail("limit", which, message, "remove one, or ask for more in Service Quotas", used=used, limit=most)
    return Finding("limit", which, Verdict.OK, f"{used} of {most:g} are used", {"used": used, "limit": most})


def _unread(check: str, subject: str, error: GpuctlError) -> Finding:
    return unknown(check, subject, str(error), error.hint)


def name(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """A cluster of this name must not exist."""
    if isinstance(facts.cluster, GpuctlError):
        return [_unread("name", cluster.name, facts.cluster)]
    if facts.cluster:
        message = f"a cluster of this name exists in {cluster.region} ({facts.cluster})"
        return [fail("name", cluster.name, message, "choose another name, or look at it: `aws eks describe-cluster`")]
    return [ok("name", cluster.name, f"no cluster of this name exists in {cluster.region}")]


def version(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """EKS must offer the version; extended support costs six times as much."""
    subject = cluster.version
    if isinstance(facts.versions, GpuctlError):
        return [_unread("version", subject, facts.versions)]
    known = {one.name: one for one in facts.versions}
    if subject not in known:
        return [fail("version", subject, "EKS does not offer this version", f"it offers {named(sorted(known), 8)}")]
    return [_support(known[subject], facts.now.date(), _newest(known))]


def _support(one: Version, today: date, newest: str) -> Finding:
    end = one.standard_end
    if one.extended_end is not None and one.extended_end <= today:
        return fail("version", one.name, f"its extended support ended on {one.extended_end}", f"use {newest}")
    if end is None:
        return unknown("version", one.name, "AWS names no end of its standard support")
    if end <= today:
        message = f"standard support ended on {end}: the control plane costs 0.60 USD an hour, not 0.10"
        return warn("version", one.name, message, f"use {newest}")
    if end - today < SOON:
        return warn("version", one.name, f"standard support ends on {end}", f"use {newest}")
    return ok("version", one.name, f"standard support until {end}")


def _newest(known: Iterable[str]) -> str:
    return max(known, key=_numbers)


def _numbers(version_name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version_name.split(".") if part.isdigit())


def zones(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Given subnets must lie in two zones or more that EKS takes."""
    if not cluster.subnets:
        return []
    if isinstance(facts.subnet_zones, GpuctlError):
        return [_unread("zones", cluster.name, facts.subnet_zones)]
    missing = [one for one in cluster.subnets if one not in facts.subnet_zones]
    if missing:
        return [fail("zones", cluster.name, f"no subnet {named(missing)} in {cluster.region}", "check the ids")]
    return [_zones(cluster, {one: facts.subnet_zones[one] for one in cluster.subnets}, set(facts.subnet_vpcs))]


def _zones(cluster: EksCluster, chosen: Mapping[str, str], vpcs: Collection[str]) -> Finding:
    if len(vpcs) > 1:
        message = f"the subnets are of several VPCs: {', '.join(sorted(vpcs))}"
        return fail("zones", cluster.name, message, "name those of one VPC")
    refused = [one for one, zone in chosen.items() if zone in NO_CONTROL_PLANE]
    if refused:
        where = ", ".join(sorted({chosen[one] for one in refused}))
        message = f"EKS takes no control plane in {where}: {named(refused)}"
        return fail("zones", cluster.name, message, "leave these subnets out")
    if len(set(chosen.values())) < 2:
        return fail("zones", cluster.name, f"all subnets lie in {next(iter(chosen.values()))}", "EKS needs two zones")
    return ok("zones", cluster.name, ", ".join(sorted(set(chosen.values()))))


def offer(group: NodeGroup, cluster: EksCluster, facts: Facts) -> list[Finding]:
    """The region must offer the type, in a zone of the given subnets."""
    kind = facts.types.get(group.instance_type)
    if kind is None or isinstance(kind, GpuctlError):
        error = kind or GpuctlError(f"read the instance type {group.instance_type}", "AWS was not asked")
        return [_unread("offer", group.name, error)]
    if not kind.zones:
        message = f"no zone of {cluster.region} offers {kind.name}"
        return [fail("offer", group.name, message, "choose another region or type")]
    offered = ", ".join(sorted(kind.zones))
    usable = set(kind.zones)
    if cluster.subnets and not isinstance(facts.subnet_zones, GpuctlError):
        usable &= set(facts.subnet_zones.values())
        if not usable:
            message = f"only {offered} offers {kind.name}, and no subnet lies there"
            return [fail("offer", group.name, message, "add a subnet there: `gpuctl subnets add`")]
    return [ok("offer", group.name, f"{kind.name} is offered in {offered}")]


def image(group: NodeGroup, facts: Facts) -> list[Finding]:
    """The image must be for the processor, and have a driver where the type has NVIDIA GPUs."""
    kind = facts.types.get(group.instance_type)
    if not isinstance(kind, Type) or not kind.zones:
        return []
    is_arm = "ARM" in group.ami
    if is_arm != (kind.architecture == "arm64"):
        message = f"{group.ami} is not for {kind.architecture}, the processor of {kind.name}"
        return [fail("image", group.name, message, f"use {'AL2023_ARM_64' if not is_arm else 'AL2023_x86_64'}_NVIDIA")]
    if "NVIDIA" not in group.ami and kind.name.startswith(("p", "g")):
        message = f"{group.ami} has no NVIDIA driver: the GPUs of {kind.name} cannot be used without your own"
        return [warn("image", group.name, message, "use an image with NVIDIA in its name")]
    return [ok("image", group.name, group.ami)]


def reservation(group: NodeGroup, cluster: EksCluster, facts: Facts) -> list[Finding]:
    """The reservation or block must be active, of this type, in a zone of the subnets, and have room."""
    if not group.reservation:
        return []
    if isinstance(facts.reservations, GpuctlError):
        return [_unread("reservation", group.name, facts.reservations)]
    one = facts.reservations.get(group.reservation)
    if one is None:
        return [fail("reservation", group.name, f"no reservation {group.reservation} here", "check the id and region")]
    found = [*_reservation(group, one, facts.now), *_room(group, one, cluster, facts)]
    return found or [
        ok("reservation", group.name, f"{one.name}: {one.available} of {one.total} are free in {one.zone_id}")
    ]


def _reservation(group: NodeGroup, one: Reservation, now: datetime) -> Iterator[Finding]:
    subject, hint = group.name, "correct the file, or the reservation"
    if one.instance_type != group.instance_type:
        yield fail("reservation", subject, f"{one.name} is for {one.instance_type}, not {group.instance_type}", hint)
    if one.is_block != (group.capacity is Capacity.BLOCK):
        kind = "a capacity block" if one.is_block else "an on-demand reservation"
        yield fail("reservation", subject, f"{one.name} is {kind}, and capacity says {group.capacity}", hint)
    if one.state == "scheduled":
        start = f"{one.start:%Y-%m-%d %H:%M} UTC" if one.start else "a time that AWS does not name"
        message = f"{one.name} starts at {start}: nodes do not start before"
        yield warn("reservation", subject, message, "keep desired at 0 until then")
    elif one.state != "active":
        yield fail("reservation", subject, f"{one.name} is {one.state}", "use an active one")
    if one.end is not None:
        yield from _end(group, one, one.end, now)


def _room(group: NodeGroup, one: Reservation, cluster: EksCluster, facts: Facts) -> Iterator[Finding]:
    """Free instances for all groups that use the reservation, and a subnet in its zone."""
    due = sum(other.desired for other in cluster.node_groups if other.reservation == one.name)
    if one.state == "active" and one.available < due:
        numbers: dict[str, Number] = {"free_instances": one.available, "desired_nodes": due}
        message = f"{one.available} of {one.total} instances of {one.name} are free, and {due} nodes start"
        yield fail("reservation", group.name, message, "lower desired, or end what uses it", **numbers)
    zones_ = None if isinstance(facts.subnet_zones, GpuctlError) else facts.subnet_zones
    if cluster.subnets and zones_ is not None and "-az" in one.zone_id and one.zone_id not in zones_.values():
        message = f"{one.name} is in {one.zone_id}, and no subnet lies there"
        yield fail("reservation", group.name, message, "add a subnet there: `gpuctl subnets add`")


def _end(group: NodeGroup, one: Reservation, end: datetime, now: datetime) -> Iterator[Finding]:
    stop = end - (SCALE_DOWN if one.is_block else timedelta(0))
    if stop <= now:
        yield fail("reservation", group.name, f"{one.name} ends at {end:%Y-%m-%d %H:%M} UTC", "use another one")
    elif one.is_block:
        message = (
            f"{one.name} ends at {end:%Y-%m-%d %H:%M} UTC: EKS takes the nodes away from {stop:%H:%M} UTC on, EC2 ends "
            f"them from {end - END_OF_BLOCK:%H:%M} UTC on"
        )
        yield warn("reservation", group.name, message, "have the last checkpoint written before")


def placement(group: NodeGroup, cluster: EksCluster, facts: Facts) -> list[Finding]:
    """A named placement group must exist; a reservation that was made in a group must be used in that group."""
    reserved = None if isinstance(facts.reservations, GpuctlError) else facts.reservations.get(group.reservation)
    group_of_reservation = reserved.group.rpartition("/")[2] if reserved else ""
    if group_of_reservation and group.placement != group_of_reservation:
        made_in = f"the placement group {group_of_reservation}"
        message = f"{group.reservation} was made in {made_in}, and placement is {group.placement}"
        return [fail("placement", group.name, message, f"set placement: {group_of_reservation}")]
    if group.placement in ("none", "cluster"):
        return []
    if isinstance(facts.placement_groups, GpuctlError):
        return [_unread("placement", group.name, facts.placement_groups)]
    one = facts.placement_groups.get(group.placement)
    if one is None or one.state != "available":
        state = "does not exist" if one is None else f"is {one.state}"
        return [fail("placement", group.name, f"the placement group {group.placement} {state}", "correct the name")]
    most = SPREAD * _zones_of(cluster, facts)
    if one.strategy == "spread" and group.max > most:
        message = f"{one.name} holds at most {most} instances, 7 in a zone, and {group.max} nodes may start"
        return [fail("placement", group.name, message, "use a cluster or partition group")]
    return [ok("placement", group.name, f"{one.name} ({one.strategy})")]


def _zones_of(cluster: EksCluster, facts: Facts) -> int:
    known = {} if isinstance(facts.subnet_zones, GpuctlError) else facts.subnet_zones
    return len({known[one] for one in cluster.subnets if one in known}) or DEFAULT_ZONES


def quota_name(instance_type: str, capacity: Capacity) -> str:
    """The quota that running instances of a type count for; "" if it is not known, as for spot ones of new types."""
    quotas = SPOT_QUOTAS if capacity is Capacity.SPOT else ON_DEMAND_QUOTAS
    family = instance_type.partition(".")[0]
    prefix = max((one for one in quotas if family.startswith(one)), key=len, default="")
    if capacity is Capacity.SPOT:
        return quotas.get(prefix, "")
    return quotas.get(prefix, STANDARD)


def quota(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Quotas of running vCPUs, against what runs now and the most nodes that all groups may have.

    Blocks are apart, and a reservation counts for the quota from its start on, used or not.
    """
    needs: dict[str, int] = {}
    findings = []
    for group in cluster.node_groups:
        kind = facts.types.get(group.instance_type)
        if group.capacity in (Capacity.BLOCK, Capacity.RESERVATION) or not isinstance(kind, Type) or not kind.zones:
            continue
        which = quota_name(group.instance_type, group.capacity)
        if which:
            needs[which] = needs.get(which, 0) + kind.vcpus * group.max
        else:
            message = f"no quota is known for {group.capacity} instances of {group.instance_type}"
            findings.append(unknown("quota", group.name, message, "look at Service Quotas, Amazon EC2"))
    return [*findings, *(_quota(which, need, facts) for which, need in needs.items())]


def _quota(which: str, need: int, facts: Facts) -> Finding:
    if isinstance(facts.quotas, GpuctlError):
        return _unread("quota", which, facts.quotas)
    limit = facts.quotas.get(which)
    if limit is None:
        return unknown("quota", which, "Service Quotas does not list it", "look at Service Quotas, Amazon EC2")
    running = _running(which, facts)
    numbers: dict[str, Number] = {"limit_vcpus": limit, "needed_vcpus": need, "running_vcpus": running}
    if need + (running or 0) > limit:
        used = f" beside {running} that run now" if running else ""
        message = f"{need} vCPUs are needed{used}, and the quota is {limit:g}"
        hint = f"ask for at least {need + (running or 0)} in Service Quotas; that can take days"
        return fail("quota", which, message, hint, **numbers)
    if running is None:
        message = f"the quota is {limit:g} vCPUs; what runs now is not known ({_of_quota(which, facts)})"
        return unknown("quota", which, message, "have ec2:DescribeInstances allowed", **numbers)
    return Finding("quota", which, Verdict.OK, f"{need} of {limit:g} vCPUs are needed, {running} run now", numbers)


def _of_quota(which: str, facts: Facts) -> Mapping[str, int] | GpuctlError:
    return facts.running_spot if which in SPOT_QUOTAS.values() else facts.running


def _running(which: str, facts: Facts) -> int | None:
    """vCPUs of running instances that count for a quota; None if it is not known."""
    running = _of_quota(which, facts)
    if isinstance(running, GpuctlError):
        return None
    capacity = Capacity.SPOT if which in SPOT_QUOTAS.values() else Capacity.ON_DEMAND
    return sum(vcpus for kind, vcpus in running.items() if quota_name(kind, capacity) == which)


# ---- cost ------------------------------------------------------------------------------------------------------------

CONTROL_PLANE_USD, EXTENDED_USD = 0.10, 0.60  # an hour. Source: Amazon EKS pricing


@dataclass(frozen=True)
class Prices:
    """On-demand prices of one region, USD an hour, with their date and source."""

    region: str
    day: date
    source: str
    usd: Mapping[str, float]


@dataclass(frozen=True)
class Cost:
    """Cost of one part an hour; None if its price is not known, `why` says why."""

    part: str
    usd_hour: float | None
    why: str


def costs(cluster: EksCluster, facts: Facts, prices: Prices) -> list[Cost]:
    """Cost of the control plane and of each group at its desired size, without disks, traffic and NAT gateways."""
    reserved = {} if isinstance(facts.reservations, GpuctlError) else facts.reservations
    groups = (_cost(group, cluster, prices, reserved.get(group.reservation)) for group in cluster.node_groups)
    return [_control_plane(cluster, facts), *groups]


def _control_plane(cluster: EksCluster, facts: Facts) -> Cost:
    versions = [] if isinstance(facts.versions, GpuctlError) else facts.versions
    one = next((one for one in versions if one.name == cluster.version), None)
    if one is None or one.standard_end is None:
        return Cost("control plane", None, "whether the version has standard support is not known")
    extended = one.standard_end <= facts.now.date()
    return Cost("control plane", EXTENDED_USD if extended else CONTROL_PLANE_USD, "Amazon EKS pricing")


def _cost(group: NodeGroup, cluster: EksCluster, prices: Prices, reserved: Reservation | None) -> Cost:
    part = f"{group.name}: {group.desired} {group.instance_type}"
    if group.capacity is Capacity.SPOT:
        return Cost(part, None, "spot prices change from hour to hour")
    if group.capacity is Capacity.BLOCK:
        return Cost(part, 0.0, "paid when the block was bought")
    if cluster.region != prices.region:
        return Cost(part, None, f"prices are known for {prices.region} alone")
    price = prices.usd.get(group.instance_type)
    if price is None:
        return Cost(part, None, "its price is not known")
    if group.capacity is Capacity.RESERVATION:
        count = max(group.desired, reserved.total if reserved else 0)
        return Cost(part, price * count, f"of {count} reserved, used or not; {prices.source}, {prices.day}")
    return Cost(part, price * group.desired, f"{prices.source}, {prices.day}")


def total(parts: Sequence[Cost]) -> float | None:
    """Sum an hour; None if one part is not known."""
    values = [part.usd_hour for part in parts]
    return None if any(value is None for value in values) else math.fsum(value or 0.0 for value in values)


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
    return [Finding("budget", cluster.name, Verdict.OK, f"{cost:.2f} of {cluster.budget_usd:g} USD", numbers)]
