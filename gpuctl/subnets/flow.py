"""List the subnets of a region, VPC or cluster with everything that holds addresses in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.edges.aws import Aws, Request
from gpuctl.subnets import node_type as node_types
from gpuctl.subnets import read
from gpuctl.subnets.forecast import CNI_TAG
from gpuctl.subnets.model import Interface, Listing, Reservation, Subnet
from gpuctl.subnets.node_type import NodeType
from gpuctl.subnets.request import SubnetsRequest

SHARDS = 8  # lists of interfaces that are paged through at the same time
MOST_VALUES = 200  # of one filter, by EC2


def connect(region: str, aws_profile: str) -> Aws:
    return Aws(region, aws_profile)


def list_subnets(aws: Aws, request: SubnetsRequest) -> Listing:
    """Read everything; InvalidInput if there is no such subnet, VPC or cluster."""
    cluster = _cluster(aws, request.cluster) if request.cluster else None
    wanted = _subnets_request(request, cluster)
    identity = Request("read the AWS account", "sts", "GetCallerIdentity")
    first = aws.read_all({"subnets": wanted, "account": identity}, _as_is)
    answers, account = _value(first["subnets"]), first["account"]
    number = "" if isinstance(account, GpuctlError) else str(account[0].get("Account", ""))
    subnets = [read.subnet(answer, number) for answer in answers]
    subnets = [one for one in subnets if cluster is None or _is_of(one, request.cluster, cluster)]
    check_subnets(subnets, request)
    contents = aws.read_all(_contents(subnets), _convert)
    again = {one["SubnetId"]: one["AvailableIpAddressCount"] for one in aws.read(wanted, _as_is)}
    interfaces = _by_subnet(contents)
    filled = [_filled(one, interfaces.get(one.name, ()), contents["reservations", one.name], again) for one in subnets]
    filled.sort(key=lambda one: (one.vpc, one.block is None, one.block or 0))
    return Listing(aws.region, datetime.now(UTC), filled, request.cluster, number)


def _as_is(answer: Any) -> Any:
    return answer


def _value(result: list[Any] | GpuctlError) -> list[Any]:
    if isinstance(result, GpuctlError):
        raise result
    return result


@dataclass(frozen=True)
class _Cluster:
    vpc: str
    subnets: frozenset[str]


def _cluster(aws: Aws, name: str) -> _Cluster:
    """VPC of a cluster, and the subnets of its control plane and node groups."""
    doing = f"read the cluster {name}"
    requests = {
        "cluster": Request(doing, "eks", "DescribeCluster", "", {"name": name}),
        "groups": Request(
            f"list the node groups of {name}", "eks", "ListNodegroups", "nodegroups", {"clusterName": name}
        ),
    }
    answers = aws.read_all(requests, _as_is)
    network = _value(answers["cluster"])[0]["cluster"].get("resourcesVpcConfig") or {}
    if not network.get("vpcId"):
        raise GpuctlError(doing, "AWS's answer names no VPC of it", "name the VPC: `gpuctl subnets --vpc ID`")
    details = {
        group: Request(
            f"read the node group {group}",
            "eks",
            "DescribeNodegroup",
            "",
            {"clusterName": name, "nodegroupName": group},
        )
        for group in _value(answers["groups"])
    }
    groups = [_value(result)[0]["nodegroup"] for result in aws.read_all(details, _as_is).values()]
    of_groups = [subnet for group in groups for subnet in group.get("subnets", ())]
    return _Cluster(network["vpcId"], frozenset([*network.get("subnetIds", ()), *of_groups]))


def _is_of(subnet: Subnet, name: str, cluster: _Cluster) -> bool:
    """True for subnets of the control plane and node groups, and for those that the CNI or load balancers may use."""
    return subnet.name in cluster.subnets or bool({CNI_TAG, f"kubernetes.io/cluster/{name}"} & subnet.tags.keys())


def _subnets_request(request: SubnetsRequest, cluster: _Cluster | None) -> Request:
    vpc = cluster.vpc if cluster else request.vpc
    filters = [{"Name": "vpc-id", "Values": [vpc]}] if vpc else []
    if request.subnet:
        filters.append({"Name": "subnet-id", "Values": list(request.subnet)})
    return Request("list subnets", "ec2", "DescribeSubnets", "Subnets", {"Filters": filters})


def check_subnets(subnets: Sequence[Subnet], request: SubnetsRequest) -> None:
    """InvalidInput if a requested subnet is missing, or there are none."""
    missing = [name for name in request.subnet if name not in {subnet.name for subnet in subnets}]
    if missing:
        raise InvalidInput("list subnets", f"no subnet {named(missing)}", "check the ids, --vpc and --region")
    if not subnets:
        where = f"the VPC {request.vpc}" if request.vpc else f"the cluster {request.cluster}" if request.cluster else ""
        wrong = f"{where} has no subnets here, or does not exist" if where else "the region has no subnets"
        raise InvalidInput("list subnets", wrong, "check the name, --region and --aws-profile")


def _contents(subnets: Sequence[Subnet]) -> dict[tuple[str, str], Request]:
    """Requests for interfaces, in shards of subnets, and for the reservations of each subnet."""
    names = [subnet.name for subnet in subnets]
    step = min(MOST_VALUES, -(-len(names) // SHARDS))
    requests: dict[tuple[str, str], Request] = {}
    for start in range(0, len(names), step):
        filters = [{"Name": "subnet-id", "Values": names[start : start + step]}]
        requests["interfaces", str(start)] = Request(
            "list network interfaces", "ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", {"Filters": filters}
        )
    for name in names:
        requests["reservations", name] = Request(
            f"list the CIDR reservations of {name}",
            "ec2",
            "GetSubnetCidrReservations",
            "SubnetIpv4CidrReservations",
            {"SubnetId": name},
        )
    return requests


def _convert(answer: Any) -> Interface | Reservation:
    return read.interface(answer) if "NetworkInterfaceId" in answer else read.reservation(answer)


def _by_subnet(contents: Mapping[tuple[str, str], list[Any] | GpuctlError]) -> dict[str, list[Interface]]:
    """Interfaces by the id of their subnet."""
    result: dict[str, list[Interface]] = {}
    for (kind, _), interfaces in contents.items():
        if kind == "interfaces":
            for interface in _value(interfaces):
                result.setdefault(interface.subnet, []).append(interface)
    return result


def _filled(
    subnet: Subnet, interfaces: Sequence[Interface], reservations: list[Any] | GpuctlError, again: Mapping[str, int]
) -> Subnet:
    """The subnet with its contents; reservations that could not be listed are None, with the reason."""
    return replace(
        subnet,
        interfaces=tuple(interfaces),
        reservations=None if isinstance(reservations, GpuctlError) else tuple(reservations),
        why=reservations.wrong if isinstance(reservations, GpuctlError) else "",
        aws_free=(*subnet.aws_free, again.get(subnet.name, subnet.aws_free[0])),
    )


def node_type(aws: Aws, name: str) -> tuple[NodeType, frozenset[str]]:
    """An instance type, and the ids of the zones of the region that offer it; InvalidInput if AWS does not know it."""
    doing = f"read the instance type {name}"
    filters = [{"Name": "instance-type", "Values": [name]}]
    offers = {"LocationType": "availability-zone-id", "Filters": filters}
    requests = {
        "type": Request(doing, "ec2", "DescribeInstanceTypes", "InstanceTypes", {"InstanceTypes": [name]}),
        "zones": Request(
            f"list the zones that offer {name}", "ec2", "DescribeInstanceTypeOfferings", "InstanceTypeOfferings", offers
        ),
    }
    answers = {key: _value(result) for key, result in aws.read_all(requests, _as_is).items()}
    if not answers["type"]:
        raise InvalidInput(doing, "AWS does not list it in this region", "check its name and --region")
    return node_types.read(answers["type"][0]), frozenset(str(one["Location"]) for one in answers["zones"])


@dataclass(frozen=True)
class VpcRoom:
    """Blocks of a VPC, blocks of its subnets, and zones of the region: name -> id."""

    blocks: Sequence[IPv4Network]
    taken: Sequence[IPv4Network]
    zones: Mapping[str, str]


def vpc_room(aws: Aws, vpc: str) -> VpcRoom:
    """Read where a VPC has room; InvalidInput if it does not exist."""
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    requests = {
        "vpc": Request(f"read the VPC {vpc}", "ec2", "DescribeVpcs", "Vpcs", {"Filters": filters}),
        "subnets": Request("list subnets", "ec2", "DescribeSubnets", "Subnets", {"Filters": filters}),
        "zones": Request("list the zones", "ec2", "DescribeAvailabilityZones", "AvailabilityZones"),
    }
    answers = {key: _value(result) for key, result in aws.read_all(requests, _as_is).items()}
    if not answers["vpc"]:
        raise InvalidInput(f"read the VPC {vpc}", "it does not exist", "check the id, --region and --aws-profile")
    associated = answers["vpc"][0].get("CidrBlockAssociationSet") or answers["vpc"]
    states = [(one["CidrBlock"], (one.get("CidrBlockState") or {}).get("State", "associated")) for one in associated]
    return VpcRoom(
        [IPv4Network(block) for block, state in states if state == "associated"],
        [block for one in answers["subnets"] if (block := read.subnet(one).block)],
        {zone["ZoneName"]: zone["ZoneId"] for zone in answers["zones"]},
    )
