"""Predict what would fail if an EKS cluster were made, and its cost: AWS is asked in parallel, nothing is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml

import gpuctl
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import prediction
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.prediction import CONTROL_PLANE_FREE, Cost, Facts, PlacementGroup, Prices, Reservation, Type, Version
from gpuctl.subnets import demand, flow, forecast, node_type
from gpuctl.subnets.model import Listing, Subnet
from gpuctl.subnets.request import SubnetsRequest

Value = TypeVar("Value")
DATA = Path(gpuctl.__file__).parent / "data"
PODS = 10  # on a node with an address of their own, where the file has no max_pods
ROLE = re.compile(r"(arn:[\w-]+):sts::(\d+):assumed-role/([^/]+)/.*")


@dataclass(frozen=True)
class EksPlan:
    """Findings on a cluster, and its cost by part."""

    cluster: EksCluster
    findings: Sequence[Finding]
    costs: Sequence[Cost]
    prices: Prices


def connect(region: str, aws_profile: str) -> Aws:
    return Aws(region, aws_profile)


def plan(aws: Aws, cluster: EksCluster) -> EksPlan:
    """Ask AWS for everything that a cluster depends on, and judge it."""
    cni = demand.settings(cluster.cni)  # refused before AWS is asked
    facts, listing, nodes = read(aws, cluster)
    prices = read_prices()
    parts = prediction.costs(cluster, facts, prices)
    findings = [*prediction.predict(cluster, facts), *prediction.budget(cluster, parts)]
    if cluster.subnets:
        findings += addresses(cluster, facts, listing, nodes, cni)
    return EksPlan(cluster, findings, parts, prices)


def read_prices() -> Prices:
    """The prices that gpuctl carries."""
    plain = yaml.safe_load((DATA / "ec2_prices.yml").read_text())
    return Prices(plain["region"], date.fromisoformat(str(plain["date"])), plain["source"], plain["prices"])


Answers = Mapping[str, list[Any] | GpuctlError]


def read(
    aws: Aws, cluster: EksCluster
) -> tuple[Facts, Listing | GpuctlError, Mapping[str, node_type.NodeType | GpuctlError]]:
    """Facts, the subnets of the cluster's VPC, and the network cards of each type."""
    types = sorted({group.instance_type for group in cluster.node_groups})
    answers = aws.read_all(_requests(cluster, types), lambda answer: answer)
    running = answers["instances"]
    kinds = set() if isinstance(running, GpuctlError) else {_type_of(one) for one in _instances(running)}
    reserved = answers["reservations"]
    kinds |= set() if isinstance(reserved, GpuctlError) else {_type_of(one) for one in reserved}
    second: dict[str, Request] = {f"known {name}": _of_type(name) for name in sorted(kinds - {"", *types})}
    more: Answers = aws.read_all(second, lambda answer: answer) if second else {}
    whole: Answers = {**answers, **more, "simulated": _simulated(aws, cluster, answers["identity"])}
    listing = _listing(aws, cluster, answers["subnets"])
    return _facts(cluster, types, whole), listing, {name: _converted(whole[f"type {name}"], _node) for name in types}


def _requests(cluster: EksCluster, types: Sequence[str]) -> dict[str, Request]:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    requests = {
        "identity": Request("read the AWS identity", "sts", "GetCallerIdentity"),
        "clusters": Request("list the EKS clusters", "eks", "ListClusters", "clusters"),
        "versions": Request("list the versions of EKS", "eks", "DescribeClusterVersions", "clusterVersions"),
        "quotas": _quotas("ec2"),
        "quotas of vpc": _quotas("vpc"),
        "instances": Request("list instances", "ec2", "DescribeInstances", "Reservations", {"Filters": states}),
        "reservations": Request(
            "list capacity reservations", "ec2", "DescribeCapacityReservations", "CapacityReservations"
        ),
        "vpcs": Request("list VPCs", "ec2", "DescribeVpcs", "Vpcs"),
        "addresses": Request("list Elastic IPs", "ec2", "DescribeAddresses", "Addresses"),
    }
    if any(group.placement not in ("none", "cluster") for group in cluster.node_groups):
        doing = "list placement groups"
        requests["placement"] = Request(doing, "ec2", "DescribePlacementGroups", "PlacementGroups")
    # By a filter: an id that does not exist is then missing, and no error.
    filters = {"Filters": [{"Name": "subnet-id", "Values": list(cluster.subnets) or ["subnet-none"]}]}
    requests["subnets"] = Request("list subnets", "ec2", "DescribeSubnets", "Subnets", filters)
    for name in types:
        requests[f"type {name}"] = _of_type(name)
        offers = [{"Name": "instance-type", "Values": [name]}]
        requests[f"zones {name}"] = Request(
            *(f"list the zones that offer {name}", "ec2", "DescribeInstanceTypeOfferings", "InstanceTypeOfferings"),
            {"LocationType": "availability-zone-id", "Filters": offers},
        )
    return requests


def _quotas(service: str) -> Request:
    doing = f"list the quotas of {service}"
    return Request(doing, "service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": service})


def _of_type(name: str) -> Request:
    doing = f"read the instance type {name}"
    return Request(doing, "ec2", "DescribeInstanceTypes", "InstanceTypes", {"InstanceTypes": [name]})


def _simulated(aws: Aws, cluster: EksCluster, identity: list[Any] | GpuctlError) -> list[Any] | GpuctlError:
    """IAM's own judgement on what the login may do; an assumed role is judged as the role."""
    if isinstance(identity, GpuctlError):
        return identity
    doing = "simulate permissions"
    arn = str(identity[0]["Arn"])
    role = ROLE.fullmatch(arn)
    if arn.endswith(":root"):
        return GpuctlError(doing, "this is the account's root user, which IAM does not simulate", "log in as a role")
    context = [
        {"ContextKeyName": name, "ContextKeyValues": values, "ContextKeyType": "stringList" if more else "string"}
        for name, values, more in (
            ("aws:RequestedRegion", [cluster.region], False),
            ("iam:PassedToService", ["eks.amazonaws.com"], False),
        )
    ]
    try:
        if role:  # its ARN may have a path, which the session's has not
            request = Request(f"read the role {role[3]}", "iam", "GetRole", "", {"RoleName": role[3]})
            arn = str(aws.read(request, lambda answer: answer)[0]["Role"]["Arn"])
        names = prediction.actions(cluster)
        parameters = {"PolicySourceArn": arn, "ActionNames": names, "ContextEntries": context}
        request = Request(doing, "iam", "SimulatePrincipalPolicy", "EvaluationResults", parameters)
        return aws.read(request, lambda answer: answer)
    except GpuctlError as error:
        return error


def _instances(reservations: Sequence[Mapping[str, Any]], *lifecycles: str) -> list[Mapping[str, Any]]:
    """Instances of these lifecycles ("" for on-demand); of all without any."""
    every = [one for group in reservations for one in group.get("Instances") or ()]
    return [one for one in every if not lifecycles or (one.get("InstanceLifecycle") or "") in lifecycles]


def _type_of(instance: Mapping[str, Any]) -> str:
    return str(instance.get("InstanceType") or "")


def _listing(aws: Aws, cluster: EksCluster, subnets: list[Any] | GpuctlError) -> Listing | GpuctlError:
    """All subnets of the VPC of the given ones, as the CNI may use others, too."""
    if isinstance(subnets, GpuctlError):
        return subnets
    if not subnets:
        return Listing(cluster.region, datetime.now(UTC), ())
    try:
        return flow.list_subnets(aws, SubnetsRequest(subnets[0]["VpcId"], "", (), cluster.region, ""))
    except GpuctlError as error:
        return error


def _converted(answers: list[Any] | GpuctlError, convert: Callable[[list[Any]], Value]) -> Value | GpuctlError:
    """A value from answers; GpuctlError for AWS's refusal, and for an answer that lacks something."""
    if isinstance(answers, GpuctlError):
        return answers
    try:
        return convert(answers)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        wrong = f"{type(error).__name__.lower()} {error}"
        return GpuctlError("read AWS's answer", wrong, "check AWS_ENDPOINT_URL: this is not what AWS answers")


def _node(answers: list[Any]) -> node_type.NodeType:
    return node_type.read(answers[0])


def _facts(cluster: EksCluster, types: Sequence[str], answers: Answers) -> Facts:
    def of(key: str, convert: Callable[[list[Any]], Value]) -> Value | GpuctlError:
        return _converted(answers[key], convert)

    def kind(name: str) -> Type | GpuctlError:
        zones = of(f"zones {name}", lambda rows: frozenset(str(one["Location"]) for one in rows))
        if zones == frozenset():  # a type that the region does not have is an error of the other request
            return Type(name, 0, "", frozenset())
        return zones if isinstance(zones, GpuctlError) else of(f"type {name}", lambda rows: _type(rows[0], zones))

    reservations = of("reservations", lambda rows: {one.name: one for one in map(_reservation, rows)})

    def on_demand(rows: list[Any]) -> dict[str, int]:
        return _running([*_instances(rows, ""), *_unused(answers["reservations"])], answers)

    running: Mapping[str, int] | GpuctlError = reservations if isinstance(reservations, GpuctlError) else {}
    vpcs = of("subnets", lambda rows: [str(one["VpcId"]) for one in rows])
    return Facts(
        now=datetime.now(UTC),
        cluster=of("clusters", lambda rows: "EKS lists it" if cluster.name in rows else ""),
        versions=of("versions", lambda rows: [_version(one) for one in rows]),
        types={name: kind(name) for name in types},
        quotas=of("quotas", _quota_values),
        vpc_quotas=of("quotas of vpc", _quota_values),
        running=running if isinstance(reservations, GpuctlError) else of("instances", on_demand),
        running_spot=of("instances", lambda rows: _running(_instances(rows, "spot"), answers)),
        reservations=reservations,
        placement_groups=of("placement", lambda rows: {one.name: one for one in map(_group, rows)})
        if "placement" in answers
        else {},
        subnet_vpcs=() if isinstance(vpcs, GpuctlError) else vpcs,
        subnet_zones=of("subnets", lambda rows: {one["SubnetId"]: str(one["AvailabilityZoneId"]) for one in rows}),
        vpcs=of("vpcs", len),
        elastic_ips=of("addresses", len),
        simulated=of("simulated", lambda rows: {one["EvalActionName"]: one["EvalDecision"] for one in rows}),
    )


def _type(answer: Mapping[str, Any], zones: frozenset[str]) -> Type:
    architectures = answer["ProcessorInfo"]["SupportedArchitectures"]
    architecture = "arm64" if "arm64" in architectures else "x86_64"
    return Type(answer["InstanceType"], int(answer["VCpuInfo"]["DefaultVCpus"]), architecture, zones)


def _quota_values(rows: list[Any]) -> dict[str, float]:
    return {str(one["QuotaName"]): float(one["Value"]) for one in rows}


def _running(instances: Sequence[Mapping[str, Any]], answers: Answers) -> dict[str, int]:
    """vCPUs by type; ValueError if the size of one is not known."""
    total: dict[str, int] = {}
    for instance in instances:
        name = _type_of(instance)
        rows = answers.get(f"type {name}", answers.get(f"known {name}", []))
        if isinstance(rows, GpuctlError) or not rows:
            raise ValueError(f"the vCPUs of {name} are not known")
        total[name] = total.get(name, 0) + int(rows[0]["VCpuInfo"]["DefaultVCpus"])
    return total


def _unused(reservations: list[Any] | GpuctlError) -> list[Mapping[str, Any]]:
    """One entry for each unused instance of an active on-demand reservation, which counts for the quota."""
    rows = [] if isinstance(reservations, GpuctlError) else reservations
    active = [one for one in rows if one["State"] == "active" and one.get("ReservationType") != "capacity-block"]
    return [one for one in active for _ in range(int(one["AvailableInstanceCount"]))]


def _version(answer: Mapping[str, Any]) -> Version:
    ends = (answer.get("endOfStandardSupportDate"), answer.get("endOfExtendedSupportDate"))
    standard, extended = (_day(one) for one in ends)
    return Version(answer["clusterVersion"], standard, extended)


def _day(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC).date()
    return date.fromisoformat(str(value)[:10]) if value else None


def _reservation(answer: Mapping[str, Any]) -> Reservation:
    return Reservation(
        name=answer["CapacityReservationId"],
        state=answer["State"],
        instance_type=answer["InstanceType"],
        zone_id=answer.get("AvailabilityZoneId") or answer.get("AvailabilityZone") or "",
        available=int(answer["AvailableInstanceCount"]),
        total=int(answer["TotalInstanceCount"]),
        is_block=answer.get("ReservationType") == "capacity-block",
        group=answer.get("PlacementGroupArn") or "",
        start=answer.get("StartDate"),
        end=answer.get("EndDate"),
    )


def _group(answer: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(answer["GroupName"], answer.get("Strategy", ""), answer.get("State", ""))


# ---- addresses -------------------------------------------------------------------------------------------------------


def addresses(
    cluster: EksCluster,
    facts: Facts,
    listing: Listing | GpuctlError,
    nodes: Mapping[str, node_type.NodeType | GpuctlError],
    cni: demand.Cni,
) -> list[Finding]:
    """All groups at their largest size, placed one after the other in the given subnets."""
    if isinstance(listing, GpuctlError):
        return [unknown("addresses", cluster.name, str(listing), listing.hint)]
    if facts.subnet_vpcs and len(set(facts.subnet_vpcs)) > 1:
        return [unknown("addresses", cluster.name, "the subnets are of several VPCs", "name those of one VPC")]
    # The control plane's interfaces come first.
    batches = [
        forecast.Batch(1, demand.Demand(CONTROL_PLANE_FREE, [demand.Pool(0, 0)], 0), [name]) for name in cluster.subnets
    ]
    findings = []
    for group in cluster.node_groups:
        made, kind = nodes[group.instance_type], facts.types[group.instance_type]
        if isinstance(made, GpuctlError) or isinstance(kind, GpuctlError):
            return [unknown("addresses", group.name, f"the interfaces of {group.instance_type} are not known")]
        homes = [one for one in listing.subnets if one.name in cluster.subnets and one.zone_id in kind.zones]
        batches.append(_batch(group, made, _near(group, homes, facts), listing.subnets, cni))
        if group.max_pods and group.max_pods > batches[-1].demand.most_pods:
            message = f"max_pods is {group.max_pods}, and {batches[-1].demand.most_pods} pods can have an address"
            findings.append(warn("addresses", group.name, message, "lower it, or set ENABLE_PREFIX_DELEGATION=true"))
    used = {name for batch in batches for name in (*batch.homes, *batch.pools)}
    if unread := [one.name for one in listing.subnets if one.name in used and one.reservations is None]:
        message = f"CIDR reservations of {', '.join(unread)} could not be listed"
        return [*findings, unknown("addresses", cluster.name, message, "have ec2:GetSubnetCidrReservations allowed")]
    return [*findings, *_shortage(cluster, listing.subnets, batches)]


def _near(group: NodeGroup, homes: Sequence[Subnet], facts: Facts) -> list[Subnet]:
    """Subnets in which a group can have nodes: those of its reservation's zone, or of one zone in a cluster group."""
    reserved = None if isinstance(facts.reservations, GpuctlError) else facts.reservations.get(group.reservation)
    if reserved is not None:
        return [one for one in homes if one.zone_id == reserved.zone_id]
    if group.placement != "cluster":
        return list(homes)
    free: dict[str, int] = {}
    for one in homes:
        free[one.zone_id] = free.get(one.zone_id, 0) + min(one.aws_free)
    return [one for one in homes if one.zone_id == max(free, key=lambda zone: free[zone])]


def _shortage(cluster: EksCluster, subnets: Sequence[Subnet], batches: Sequence[forecast.Batch]) -> list[Finding]:
    short = forecast.first_shortage(subnets, batches)
    if short is None:
        return [ok("addresses", cluster.name, "all node groups fit in the subnets at their largest size")]
    number, count, breaks = forecast.first_shortage(subnets, batches, worst=False) or short
    is_luck = forecast.first_shortage(subnets, batches, worst=False) is None
    if number < len(cluster.subnets):
        name = cluster.subnets[number]
        message = f"{name} has fewer than {CONTROL_PLANE_FREE} free addresses, which the control plane needs"
        return [fail("addresses", cluster.name, message, "leave it out, or add a subnet: `gpuctl subnets add`")]
    group = cluster.node_groups[number - len(cluster.subnets)]
    what = "the pods of the next get no address" if breaks.launches else "the next does not start"
    message = f"{count} of {group.max} nodes of {group.name} fit, and {what}: {breaks.error} in {breaks.subnet}"
    hint = f"`gpuctl subnets forecast --type {group.instance_type} --nodes {group.max}` names a setting or size"
    if is_luck:
        message = f"only if EC2 takes single addresses from broken /28s do all fit; else {message}"
        return [warn("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]
    return [fail("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]


def _batch(
    group: NodeGroup, made: node_type.NodeType, homes: Sequence[Subnet], subnets: Sequence[Subnet], cni: demand.Cni
) -> forecast.Batch:
    planned = node_type.interfaces(made, node_type.Layout(group.layout))
    need = demand.demand(made, planned, cni, group.max_pods or PODS)
    pools = {one.name for home in homes for one in forecast.shared_pools(home, subnets)} if cni.subnet_discovery else ()
    return forecast.Batch(group.max, need, tuple(one.name for one in homes), tuple(sorted(pools)))
