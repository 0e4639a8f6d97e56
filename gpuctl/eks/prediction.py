"""Findings about a cluster that does not exist yet: what AWS would refuse, and what could not be known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.domain.eks_zones import NO_CONTROL_PLANE
from gpuctl.domain.findings import Finding, Number, fail, ok, or_ok, unknown, unknown_because, warn
from gpuctl.eks import network
from gpuctl.eks.facts import Facts, Reservation, Type, Version
from gpuctl.eks.limits import limits
from gpuctl.eks.model import PRIVATE_BLOCKS, Capacity, EksCluster, NodeGroup
from gpuctl.eks.objects import Kind, State
from gpuctl.eks.parts import parts
from gpuctl.eks.placement import placement
from gpuctl.eks.quotas import quota

END_OF_BLOCK = timedelta(minutes=30)  # before its end EC2 ends the instances of a block
SCALE_DOWN = timedelta(minutes=40)  # before its end EKS scales a group on a block down
SOON = timedelta(days=60)
USAGES = {Capacity.SPOT: "spot", Capacity.BLOCK: "capacity-block"}
# Source: CHANGELOG and documentation of awslabs/amazon-eks-ami.
G7_DRIVER, DRIVER_OF_IMAGES, IMAGES_OF = "595", "580", "2026-07-14"
CONTROL_PLANE_FREE = 6  # addresses that EKS needs in each subnet of a cluster


def predict(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Findings in the order in which AWS would meet them; an OK for what nothing speaks against."""
    findings = [*permissions(cluster, facts), *name(cluster, facts), *parts(cluster, facts), *version(cluster, facts)]
    findings += [*existing("addons", facts.addons), *existing("admins", facts.admins), *zones(cluster, facts)]
    for group in cluster.node_groups:
        findings += offer(group, cluster, facts)
        findings += image(group, facts)
        findings += reservation(group, cluster, facts)
        findings += placement(group, cluster, facts)
    return [*findings, *quota(cluster, facts), *limits(cluster, facts)]


def endpoint(cluster: EksCluster) -> list[Finding]:
    """Blocks in `allowed` are public; without a private endpoint nodes reach the public one from one of them."""
    private = [str(block) for block in cluster.allowed if any(map(block.subnet_of, PRIVATE_BLOCKS))]
    if private:
        message = f"EKS takes no private block for the public endpoint: {named(private)}"
        return [fail("network", cluster.name, message, "name the blocks from which people come on the internet")]
    if cluster.private_endpoint or not cluster.allowed:
        return []
    if cluster.vpc is not None:
        wrong = "nodes reach the endpoint from the NAT gateway, whose address is not in `allowed`: none would join"
        raise InvalidInput(f"make {cluster.name}", wrong, "set private_endpoint: true, or leave allowed out")
    message = "without a private endpoint, nodes join only if `allowed` holds the address from which they leave the VPC"
    return [warn("network", cluster.name, message, "set private_endpoint: true")]


def actions(cluster: EksCluster, *, has_efa: bool = False) -> list[str]:
    """IAM actions of all calls that make the cluster, beside those that read. `has_efa`: True if a group has EFA."""
    names = ["eks:CreateCluster", "eks:CreateNodegroup", "eks:CreateAddon", "eks:TagResource"]
    names += ["iam:CreateRole", "iam:TagRole", "iam:AttachRolePolicy", "iam:PassRole"]
    names += ["ec2:CreateLaunchTemplate", "ec2:RunInstances", "ec2:CreateTags"]
    names += ["eks:CreateAccessEntry", "eks:AssociateAccessPolicy"] if cluster.admins else []
    if cluster.vpc is not None:
        names += ["ec2:CreateVpc", "ec2:ModifyVpcAttribute", "ec2:CreateSubnet", "ec2:CreateInternetGateway"]
        names += ["ec2:AttachInternetGateway", "ec2:AllocateAddress", "ec2:CreateNatGateway"]
        names += ["ec2:CreateRouteTable", "ec2:CreateRoute", "ec2:AssociateRouteTable"]
    efa_rules = ["ec2:AuthorizeSecurityGroupIngress", "ec2:AuthorizeSecurityGroupEgress"]
    names += ["ec2:CreateSecurityGroup", *efa_rules] if has_efa else []
    names += ["ec2:CreatePlacementGroup"] if any(one.placement == "cluster" for one in cluster.node_groups) else []
    return names


def permissions(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """IAM's decisions; an action that it allows for some resources only may be allowed for ours."""
    if isinstance(facts.simulated, GpuctlError):
        return [unknown_because("permissions", "", facts.simulated)]
    decisions = {name: facts.simulated.get(name, "") for name in actions(cluster, has_efa=facts.has_efa)}
    denied = [name for name, decision in decisions.items() if decision == "explicitDeny"]
    unsure = [name for name, decision in decisions.items() if decision not in ("allowed", "explicitDeny")]
    found = []
    if denied:
        message = f"a policy denies {named(denied, 8)}"
        found.append(fail("permissions", "", message, "have them allowed, or log in as another"))
    if unsure:
        message = f"no policy allows {named(unsure, 8)} for every resource; one may for those of this cluster"
        found.append(unknown("permissions", "", message, "compare the policies of this login, or have them allowed"))
    return or_ok("permissions", "", found, f"{len(decisions)} actions are allowed, by a simulation")


def name(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """A cluster of this name must not exist, unless an interrupted run of gpuctl made it."""
    if isinstance(facts.cluster, GpuctlError):
        return [unknown_because("name", cluster.name, facts.cluster)]
    if facts.cluster and isinstance(facts.state, State) and any(one.ours for one in facts.state.of(Kind.CLUSTER)):
        return [ok("name", cluster.name, "gpuctl made it: `gpuctl eks resume` goes on")]
    if facts.cluster:
        message = f"a cluster of this name exists in {cluster.region} ({facts.cluster})"
        return [fail("name", cluster.name, message, "choose another name, or look at it: `aws eks describe-cluster`")]
    return [ok("name", cluster.name, f"no cluster of this name exists in {cluster.region}")]


def version(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """EKS must offer the version; extended support costs six times as much."""
    subject = cluster.version
    if isinstance(facts.versions, GpuctlError):
        return [unknown_because("version", subject, facts.versions)]
    known = {one.name: one for one in facts.versions}
    if subject not in known:
        return [fail("version", subject, "EKS does not offer this version", f"it offers {named(sorted(known), 8)}")]
    return [support(known[subject], facts.now.date(), newest_of(known))]


def support(one: Version, today: date, newest: str) -> Finding:
    """A version that EKS offers, by the ends of its support."""
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


def newest_of(known: Iterable[str]) -> str:
    """The newest of versions such as 1.36."""
    return max(known, key=_numbers)


def _numbers(version_name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version_name.split(".") if part.isdigit())


def existing(check: str, named_in_file: Mapping[str, bool | GpuctlError]) -> list[Finding]:
    """Addons that EKS offers for the version, or administrators that exist, by what AWS answered for each name."""
    wrong, hint = {
        "addons": ("EKS offers no addon of this name for the version", "`aws eks describe-addon-versions` lists them"),
        "admins": ("IAM has no such role or user: EKS refuses it", "correct the ARN"),
    }[check]
    found = []
    for one, exists in named_in_file.items():
        if isinstance(exists, GpuctlError):
            found.append(unknown_because(check, one, exists))
        elif not exists:
            found.append(fail(check, one, wrong, hint))
    return or_ok(check, "", found, f"{len(named_in_file)} exist") if named_in_file else []


def zones(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Given subnets must lie in two zones or more that EKS takes; those of a VPC of its own, where groups can be."""
    if not cluster.subnets:
        return _own_zones(cluster, facts)
    if isinstance(facts.subnet_zones, GpuctlError):
        return [unknown_because("zones", cluster.name, facts.subnet_zones)]
    missing = [one for one in cluster.subnets if one not in facts.subnet_zones]
    if missing:
        return [fail("zones", cluster.name, f"no subnet {named(missing)} in {cluster.region}", "check the ids")]
    return [_zones(cluster, {one: facts.subnet_zones[one] for one in cluster.subnets}, set(facts.subnet_vpcs))]


def _own_zones(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Zones that a VPC of its own gets. A group that can be nowhere has a finding already."""
    if isinstance(facts.zones, GpuctlError):
        return [unknown_because("zones", cluster.name, facts.zones)]
    try:
        needed = {group: where for group, where in network.needed_zones(cluster, facts).items() if where}
        chosen = network.choose_zones(facts.zones, needed, {})
    except InvalidInput as error:
        return [fail("zones", cluster.name, error.wrong, error.hint)]
    except GpuctlError:  # AWS did not answer for a type or the reservations
        return []
    return [ok("zones", cluster.name, ", ".join(chosen))]


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
        return [unknown_because("offer", group.name, error)]
    if not kind.zones:
        message = f"no zone of {cluster.region} offers {kind.name}"
        return [fail("offer", group.name, message, "choose another region or type")]
    usage = USAGES.get(group.capacity, "on-demand")
    if kind.usages and usage not in kind.usages:
        message = f"EC2 does not offer {kind.name} as {usage}, only as {', '.join(sorted(kind.usages))}"
        return [fail("offer", group.name, message, "choose another capacity or type")]
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
    if kind.name.startswith("g7."):
        message = f"{kind.name} needs driver {G7_DRIVER}, and EKS's images of {IMAGES_OF} have {DRIVER_OF_IMAGES}"
        return [warn("image", group.name, message, "see whether newer images have it: `nvidia-smi` on a node")]
    if "NVIDIA" not in group.ami and kind.name.startswith(("p", "g")):
        message = f"{group.ami} has no NVIDIA driver: the GPUs of {kind.name} cannot be used without your own"
        return [warn("image", group.name, message, "use an image with NVIDIA in its name")]
    return [ok("image", group.name, group.ami)]


def reservation(group: NodeGroup, cluster: EksCluster, facts: Facts) -> list[Finding]:
    """The reservation or block must be active, of this type, in a zone of the subnets, and have room."""
    if not group.reservation:
        return []
    if isinstance(facts.reservations, GpuctlError):
        return [unknown_because("reservation", group.name, facts.reservations)]
    one = facts.reservations.get(group.reservation)
    if one is None:
        return [fail("reservation", group.name, f"no reservation {group.reservation} here", "check the id and region")]
    found = [*_reservation(group, one, facts.now, cluster.ttl_hours), *_room(group, one, cluster, facts)]
    free = f"{one.name}: {one.available} of {one.total} are free in {one.zone_id}"
    return or_ok("reservation", group.name, found, free)


def _reservation(group: NodeGroup, one: Reservation, now: datetime, ttl_hours: float | None) -> Iterator[Finding]:
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
        yield from _end(group, one, one.end, now, ttl_hours)


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


def _end(
    group: NodeGroup, one: Reservation, end: datetime, now: datetime, ttl_hours: float | None
) -> Iterator[Finding]:
    """A block that ends after the time to live of the cluster is no finding."""
    stop = end - (SCALE_DOWN if one.is_block else timedelta(0))
    if stop <= now:
        yield fail("reservation", group.name, f"{one.name} ends at {end:%Y-%m-%d %H:%M} UTC", "use another one")
    elif one.is_block and (ttl_hours is None or now + timedelta(hours=ttl_hours) > stop):
        message = (
            f"{one.name} ends at {end:%Y-%m-%d %H:%M} UTC: EKS takes the nodes away from {stop:%H:%M} UTC on, EC2 ends "
            f"them from {end - END_OF_BLOCK:%H:%M} UTC on"
        )
        yield warn("reservation", group.name, message, "have the last checkpoint written before")
