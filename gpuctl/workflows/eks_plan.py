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
from gpuctl.domain.findings import Finding, fail, ok, unknown
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import prediction
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.prediction import ACTIONS, Cost, Facts, PlacementGroup, Prices, Reservation, Type, Version
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
    kinds = [] if isinstance(running, GpuctlError) else sorted({_type_of(one) for one in _on_demand(running)})
    second: dict[str, Request] = {f"known {name}": _of_type(name) for name in kinds if name not in types}
    identity = answers["identity"]
    if not isinstance(identity, GpuctlError):
        second["denied"] = _simulation(identity[0]["Arn"])
    more: Answers = aws.read_all(second, lambda answer: answer) if second else {}
    whole: Answers = {**answers, **more}
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
        "vpcs": Request("list VPCs", "ec2", "DescribeVpcs", "Vpcs"),
        "addresses": Request("list Elastic IPs", "ec2", "DescribeAddresses", "Addresses"),
    }
    if any(group.reservation for group in cluster.node_groups):
        doing = "list capacity reservations"
        requests["reservations"] = Request(doing, "ec2", "DescribeCapacityReservations", "CapacityReservations")
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


def _simulation(arn: str) -> Request:
    """IAM's own judgement on what a login may do; an assumed role is judged as the role."""
    source = ROLE.sub(r"\1:iam::\2:role/\3", arn)
    parameters = {"PolicySourceArn": source, "ActionNames": list(ACTIONS)}
    return Request("simulate permissions", "iam", "SimulatePrincipalPolicy", "EvaluationResults", parameters)


def _on_demand(reservations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Instances that are neither spot nor of a capacity block."""
    return [one for group in reservations for one in group.get("Instances") or () if not one.get("InstanceLifecycle")]


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
        return zones if isinstance(zones, GpuctlError) else of(f"type {name}", lambda rows: _type(rows[0], zones))

    quotas = of("quotas", _quota_values)
    of_vpc = of("quotas of vpc", _quota_values)
    if not isinstance(quotas, GpuctlError) and not isinstance(of_vpc, GpuctlError):
        quotas = {**quotas, **of_vpc}
    return Facts(
        now=datetime.now(UTC),
        cluster=of("clusters", lambda rows: "EKS lists it" if cluster.name in rows else ""),
        versions=of("versions", lambda rows: [_version(one) for one in rows]),
        types={name: kind(name) for name in types},
        quotas=quotas,
        running=of("instances", lambda rows: _running(_on_demand(rows), answers)),
        reservations=of("reservations", lambda rows: {one.name: one for one in map(_reservation, rows)})
        if "reservations" in answers
        else {},
        placement_groups=of("placement", lambda rows: {one.name: one for one in map(_group, rows)})
        if "placement" in answers
        else {},
        subnet_zones=of("subnets", lambda rows: {one["SubnetId"]: str(one["AvailabilityZoneId"]) for one in rows}),
        vpcs=of("vpcs", len),
        elastic_ips=of("addresses", len),
        denied=of("denied", lambda rows: [one["EvalActionName"] for one in rows if one["EvalDecision"] != "allowed"])
        if "denied" in answers
        else GpuctlError("simulate permissions", "who is logged in could not be read"),
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


def _version(answer: Mapping[str, Any]) -> Version:
    ends = (answer.get("endOfStandardSupportDate"), answer.get("endOfExtendedSupportDate"))
    standard, extended = (_day(one) for one in ends)
    return Version(answer["clusterVersion"], standard, extended)


def _day(value: Any) -> date | None:
    return value.date() if isinstance(value, datetime) else date.fromisoformat(str(value)[:10]) if value else None


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
    if unread := [one.name for one in listing.subnets if one.name in cluster.subnets and one.reservations is None]:
        message = f"CIDR reservations of {', '.join(unread)} could not be listed"
        return [unknown("addresses", cluster.name, message, "have ec2:GetSubnetCidrReservations allowed")]
    batches: list[forecast.Batch] = []
    for group in cluster.node_groups:
        made, kind = nodes[group.instance_type], facts.types[group.instance_type]
        if isinstance(made, GpuctlError) or isinstance(kind, GpuctlError):
            return [unknown("addresses", group.name, f"the interfaces of {group.instance_type} are not known")]
        homes = [one for one in listing.subnets if one.name in cluster.subnets and one.zone_id in kind.zones]
        batches.append(_batch(group, made, homes, listing.subnets, cni))
    short = forecast.first_shortage(listing.subnets, batches)
    if short is None:
        return [ok("addresses", cluster.name, "all node groups fit in the subnets at their largest size")]
    number, count, breaks = short
    group = cluster.node_groups[number]
    what = "the pods of the next get no address" if breaks.launches else "the next does not start"
    message = f"{count} of {group.max} nodes of {group.name} fit, and {what}: {breaks.error} in {breaks.subnet}"
    hint = f"`gpuctl subnets forecast --type {group.instance_type} --nodes {group.max}` names a setting or size"
    return [fail("addresses", group.name, message, hint, fitting_nodes=count, most_nodes=group.max)]


def _batch(
    group: NodeGroup, made: node_type.NodeType, homes: Sequence[Subnet], subnets: Sequence[Subnet], cni: demand.Cni
) -> forecast.Batch:
    planned = node_type.interfaces(made, node_type.Layout(group.layout))
    need = demand.demand(made, planned, cni, group.max_pods or PODS)
    pools = {one.name for home in homes for one in forecast.shared_pools(home, subnets)} if cni.subnet_discovery else ()
    return forecast.Batch(group.max, need, tuple(one.name for one in homes), tuple(sorted(pools)))
