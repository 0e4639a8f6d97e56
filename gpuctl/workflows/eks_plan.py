"""Predict what would fail if an EKS cluster were made, and its cost: AWS is asked in parallel, nothing is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding
from gpuctl.edges.aws import Aws, Request, converted
from gpuctl.eks import cost, node_template, prediction, read
from gpuctl.eks import state as states
from gpuctl.eks.cost import Cost, Prices
from gpuctl.eks.due import due
from gpuctl.eks.facts import Facts, Type
from gpuctl.eks.model import EksCluster
from gpuctl.eks.objects import Kind, Object, State, from_answer, object_name
from gpuctl.eks.price_list import PRODUCTS
from gpuctl.eks.read import Answers
from gpuctl.eks.simulation import decisions, simulations
from gpuctl.subnets import demand, flow, network_flow, node_type
from gpuctl.subnets import read as subnet_values
from gpuctl.subnets.model import Listing
from gpuctl.subnets.network import Network
from gpuctl.subnets.request import SubnetsRequest
from gpuctl.workflows import eks_prices
from gpuctl.workflows.eks_addresses import addresses
from gpuctl.workflows.eks_network import network

Value = TypeVar("Value")
ROLE = re.compile(r":assumed-role/([^/]+)/")


@dataclass(frozen=True)
class EksPlan:
    """Findings on a cluster, its cost by part, and what AWS answered on its types."""

    cluster: EksCluster
    findings: Sequence[Finding]
    costs: Sequence[Cost]
    prices: Prices
    facts: Facts
    nodes: Mapping[str, node_type.NodeType | GpuctlError]


def connect(region: str, aws_profile: str) -> Aws:
    return Aws(region, aws_profile)


def plan(aws: Aws, cluster: EksCluster, refresh: bool = False, state: State | None = None) -> EksPlan:
    """Ask AWS for everything that a cluster depends on, and judge what is still to be made.

    `refresh`: ask for prices, too. `state`: objects of the cluster, if they are known.
    """
    cni, findings = demand.settings(cluster.cni), prediction.endpoint(cluster)  # refused before AWS is asked
    facts, listing, nodes, around = ask(aws, cluster, state)
    findings += eks_prices.refresh(aws, [*cost.priced(cluster), *PRODUCTS]) if refresh else []
    prices = eks_prices.read(cluster.region)
    findings += eks_prices.judge(prices)
    parts = cost.costs(cluster, facts, prices)
    findings += [*prediction.predict(cluster, facts), *cost.budget(cluster, parts)]
    if cluster.subnets:
        findings += addresses(cluster, facts, listing, nodes, cni)
        findings += network(cluster, facts, listing, nodes, around)
    if isinstance(facts.state, State):
        findings = due(findings, facts.state, cluster)
    return EksPlan(cluster, findings, parts, prices, facts, nodes)


def ask(
    aws: Aws, cluster: EksCluster, state: State | None = None
) -> tuple[Facts, Listing | GpuctlError, Mapping[str, node_type.NodeType | GpuctlError], Network | GpuctlError]:
    """Facts, the subnets of the cluster's VPC, the network cards of each type, and the network of the VPC."""
    types = sorted({group.instance_type for group in cluster.node_groups})
    with AbandonablePool(7) as pool:
        existing = pool.submit(_state, aws, cluster, state)
        interfaces = pool.submit(_interfaces, aws)
        answers = aws.read_all(_requests(cluster, types), _as_is)
        nodes = {name: converted(answers[f"type {name}"], _node, "read an instance type") for name in types}
        layouts = _layouts(cluster, nodes)
        has_efa = any(one.kind != node_type.PLAIN for several in layouts.values() for one in several)
        # What needs those answers, and nothing of each other.
        others = pool.submit(_other_types, aws, types, answers)
        simulated = pool.submit(_simulated, aws, cluster, answers["identity"], has_efa=has_efa)
        admins = pool.submit(_admins, aws, cluster, answers["identity"])
        listing = pool.submit(_listing, aws, cluster, answers["subnets"])
        around = pool.submit(_network, aws, answers["subnets"])
        whole: Answers = {**answers, **others.result(), **admins.result(), "simulated": simulated.result()}
        facts = replace(
            _facts(cluster, types, whole),
            state=existing.result(),
            has_efa=has_efa,
            interfaces=interfaces.result(),
            node_interfaces={name: len(several) for name, several in layouts.items()},
        )
        return facts, listing.result(), nodes, around.result()


def _state(aws: Aws, cluster: EksCluster, known: State | None) -> State | GpuctlError:
    """Objects of the cluster."""
    if known is not None:
        return known
    try:
        return states.read(aws, cluster.name)
    except GpuctlError as error:
        return error


def _interfaces(aws: Aws) -> int | GpuctlError:
    """Count of the network interfaces of the region."""
    listing = ("ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", {"Filters": list[Any]()})
    try:
        return sum(aws.read(Request("count network interfaces", *listing), lambda _: 1))
    except GpuctlError as error:
        return error


def _layouts(
    cluster: EksCluster, nodes: Mapping[str, node_type.NodeType | GpuctlError]
) -> dict[str, Sequence[node_type.Planned]]:
    """Group -> interfaces of its nodes, for groups whose type is known."""
    kinds = {group.name: (group, nodes[group.instance_type]) for group in cluster.node_groups}
    return {
        name: node_type.interfaces(kind, node_type.Layout(group.layout))
        for name, (group, kind) in kinds.items()
        if not isinstance(kind, GpuctlError)
    }


def _as_is(answer: Any) -> Any:
    return answer


def _other_types(aws: Aws, types: Sequence[str], answers: Answers) -> Answers:
    """Types of what runs or is reserved, beside those of the cluster."""
    running, reserved = answers["instances"], answers["reservations"]
    names = set() if isinstance(running, GpuctlError) else {read.type_of(one) for one in read.instances(running)}
    names |= set() if isinstance(reserved, GpuctlError) else {read.type_of(one) for one in reserved}
    requests = {f"known {name}": _of_type(name) for name in sorted(names - {"", *types})}
    return aws.read_all(requests, _as_is)


def _network(aws: Aws, subnets: list[Any] | GpuctlError) -> Network | GpuctlError:
    """What lies around the given subnets."""
    if isinstance(subnets, GpuctlError):
        return subnets
    if not subnets:
        return Network({}, [], [], [], [])
    try:
        return network_flow.read_network(aws, [subnet_values.subnet(one) for one in subnets])
    except GpuctlError as error:
        return error


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
        "quotas of eks": _quotas("eks"),
        "summary": Request("count the IAM roles", "iam", "GetAccountSummary"),
        "vpcs": Request("list VPCs", "ec2", "DescribeVpcs", "Vpcs"),
        "addresses": Request("list Elastic IPs", "ec2", "DescribeAddresses", "Addresses"),
    }
    if any(group.placement != "none" for group in cluster.node_groups):
        doing = "list placement groups"
        requests["placement"] = Request(doing, "ec2", "DescribePlacementGroups", "PlacementGroups")
    names = [object_name(cluster.name, group.name) for group in cluster.node_groups]
    of_names = {"Filters": [{"Name": "launch-template-name", "Values": names}]}
    requests["templates"] = Request(
        "list launch templates", "ec2", "DescribeLaunchTemplates", "LaunchTemplates", of_names
    )
    requests |= _named_in_file(cluster)
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


def _named_in_file(cluster: EksCluster) -> dict[str, Request]:
    """Requests for addons; for zones and gateways, if a VPC is made."""
    requests = {}
    for name in cluster.addons:
        if name not in (*node_template.BEFORE_NODES, *node_template.AFTER_NODES):
            parameters = {"addonName": name, "kubernetesVersion": cluster.version}
            doing = f"read the addon {name}"
            requests[f"addon {name}"] = Request(doing, "eks", "DescribeAddonVersions", "addons", parameters)
    if cluster.vpc is not None:
        filters = {"Filters": [{"Name": "zone-type", "Values": ["availability-zone"]}]}
        zones = ("ec2", "DescribeAvailabilityZones", "AvailabilityZones", filters)
        requests["zones"] = Request("list the zones", *zones)
        doing = "list internet gateways"
        requests["gateways"] = Request(doing, "ec2", "DescribeInternetGateways", "InternetGateways")
    return requests


def _admins(aws: Aws, cluster: EksCluster, identity: list[Any] | GpuctlError) -> Answers:
    """Answers on administrators of the login's account. IAM takes names alone, so that others are not asked for."""
    if isinstance(identity, GpuctlError):
        return {}
    requests = {}
    for arn in cluster.admins:
        if arn.split(":")[4] == str(identity[0]["Account"]):
            kind, name = ("Role" if ":role/" in arn else "User"), arn.rpartition("/")[2]
            requests[f"admin {arn}"] = Request(f"read {arn}", "iam", f"Get{kind}", "", {f"{kind}Name": name})
    return aws.read_all(requests, _as_is)


def _quotas(service: str) -> Request:
    doing = f"list the quotas of {service}"
    return Request(doing, "service-quotas", "ListServiceQuotas", "Quotas", {"ServiceCode": service})


def _of_type(name: str) -> Request:
    doing = f"read the instance type {name}"
    return Request(doing, "ec2", "DescribeInstanceTypes", "InstanceTypes", {"InstanceTypes": [name]})


def _simulated(
    aws: Aws, cluster: EksCluster, identity: list[Any] | GpuctlError, *, has_efa: bool
) -> list[Any] | GpuctlError:
    """IAM's own judgement on what the login may do; an assumed role is judged as the role."""
    if isinstance(identity, GpuctlError):
        return identity
    doing = "simulate permissions"
    arn = str(identity[0]["Arn"])
    role = ROLE.search(arn)
    if arn.endswith(":root"):
        return GpuctlError(doing, "this is the account's root user, which IAM does not simulate", "log in as a role")
    try:
        if role:  # its ARN may have a path, which the session's has not
            request = Request(f"read the role {role[1]}", "iam", "GetRole", "", {"RoleName": role[1]})
            arn = str(aws.read(request, _as_is)[0]["Role"]["Arn"])
    except GpuctlError as error:
        return error
    requests = {
        number: Request(doing, "iam", "SimulatePrincipalPolicy", "EvaluationResults", {"PolicySourceArn": arn, **one})
        for number, one in enumerate(simulations(cluster, arn, has_efa=has_efa))
    }
    rows = []
    for answer in aws.read_all(requests, _as_is).values():
        if isinstance(answer, GpuctlError):
            return answer
        rows += answer
    return rows


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


def _node(answers: list[Any]) -> node_type.NodeType:
    return node_type.read(answers[0])


def _facts(cluster: EksCluster, types: Sequence[str], answers: Answers) -> Facts:
    def of(key: str, convert: Callable[[list[Any]], Value]) -> Value | GpuctlError:
        return converted(answers[key], convert, f"read {key}")

    def kind(name: str) -> Type | GpuctlError:
        zones = of(f"zones {name}", lambda rows: frozenset(str(one["Location"]) for one in rows))
        if zones == frozenset():  # a type that the region does not have is an error of the other request
            return Type(name, 0, "", frozenset())
        return (
            zones
            if isinstance(zones, GpuctlError)
            else of(f"type {name}", lambda rows: read.instance_type(rows[0], zones))
        )

    reservations = of("reservations", lambda rows: {one.name: one for one in map(read.reservation, rows)})

    def on_demand(rows: list[Any]) -> dict[str, int]:
        return read.running([*read.instances(rows, ""), *read.unused(answers["reservations"])], answers)

    vpcs = of("subnets", lambda rows: [str(one["VpcId"]) for one in rows])
    return Facts(
        now=datetime.now(UTC),
        cluster=of("clusters", lambda rows: "EKS lists it" if cluster.name in rows else ""),
        versions=of("versions", lambda rows: [read.version(one) for one in rows]),
        types={name: kind(name) for name in types},
        quotas=of("quotas", read.quotas),
        vpc_quotas=of("quotas of vpc", read.quotas),
        running=reservations if isinstance(reservations, GpuctlError) else of("instances", on_demand),
        running_spot=of("instances", lambda rows: read.running(read.instances(rows, "spot"), answers)),
        reservations=reservations,
        placement_groups=of("placement", lambda rows: {one.name: one for one in map(read.placement_group, rows)})
        if "placement" in answers
        else {},
        subnet_vpcs=() if isinstance(vpcs, GpuctlError) else vpcs,
        subnet_zones=of("subnets", lambda rows: {one["SubnetId"]: str(one["AvailabilityZoneId"]) for one in rows}),
        tenancy=_tenancy(cluster, vpcs, answers["vpcs"]),
        vpcs=of("vpcs", len),
        elastic_ips=of("addresses", len),
        clusters=of("clusters", len),
        eks_quotas=of("quotas of eks", read.quotas),
        roles=of("summary", lambda rows: int(rows[0]["SummaryMap"]["Roles"])),
        **_asked(cluster, answers),
        simulated=of("simulated", decisions),
    )


def _asked(cluster: EksCluster, answers: Answers) -> dict[str, Any]:
    """Facts on what the file names, and on what a VPC of its own needs."""

    def of(key: str, convert: Callable[[list[Any]], Value]) -> Value | GpuctlError:
        return converted(answers[key], convert, f"read {key}")

    found: dict[str, Any] = {
        "most_roles": of("summary", lambda rows: _number(rows[0]["SummaryMap"].get("RolesQuota"))),
        "addons": {key.removeprefix("addon "): of(key, bool) for key in answers if key.startswith("addon ")},
        "admins": {arn: _exists(arn, answers) for arn in cluster.admins},
        "templates": of("templates", lambda rows: [_template(one, cluster) for one in rows]),
    }
    if cluster.vpc is not None:
        found["zones"] = of(
            "zones", lambda rows: [str(one["ZoneId"]) for one in rows if one.get("State") == "available"]
        )
        found["internet_gateways"] = of("gateways", len)
    return found


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _template(answer: Any, cluster: EksCluster) -> Object:
    return from_answer(Kind.TEMPLATE, answer, cluster.name, cluster.region)


def _exists(arn: str, answers: Answers) -> bool | GpuctlError:
    """True for a role or user that exists; an error for one of another account, which cannot be asked."""
    identity = answers["identity"]
    if isinstance(identity, GpuctlError):
        return identity
    if str(identity[0]["Account"]) != arn.split(":")[4]:
        return GpuctlError(f"read {arn}", "it is of another account", "check there that it exists")
    answer = answers[f"admin {arn}"]
    if isinstance(answer, GpuctlError):
        return False if states.is_absent(answer) else answer
    member = answer[0].get("Role") or answer[0].get("User") or {}
    return str(member.get("Arn")) == arn


def _tenancy(
    cluster: EksCluster, vpcs: Sequence[str] | GpuctlError, listed: list[Any] | GpuctlError
) -> str | GpuctlError:
    """Tenancy of instances in the VPCs of the given subnets; a VPC that is made has shared hardware."""
    if not cluster.subnets:
        return "default"
    if isinstance(vpcs, GpuctlError):
        return vpcs
    return converted(listed, lambda rows: read.tenancy(rows, vpcs), "read the tenancy of the VPC")
