"""Make the network of a cluster: a VPC of its own, and the security group for EFA."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Request, code_of
from gpuctl.eks import network
from gpuctl.eks import state as states
from gpuctl.eks.maker import Maker
from gpuctl.eks.network import Place
from gpuctl.eks.objects import (
    EFA_GROUP,
    Kind,
    Object,
    object_name,
)
from gpuctl.eks.wait import NAT_UP

OUR_PART = re.compile(rf"(?:{network.PRIVATE}|{network.PUBLIC})-([0-9])")
ANYWHERE = "0.0.0.0/0"


def make_vpc(maker: Maker) -> list[Object]:
    """VPC, internet gateway, subnets, NAT gateway and routes; returns the subnets."""
    block = maker.cluster.vpc
    vpc = maker.ec2(Kind.VPC, "vpc", "CreateVpc", "Vpc", "vpc", CidrBlock=str(block)).name
    if not maker.state.of(Kind.CLUSTER):
        for name in ("EnableDnsSupport", "EnableDnsHostnames"):
            maker.act("set DNS of the VPC", "ec2", "ModifyVpcAttribute", {"VpcId": vpc, name: {"Value": True}})
    gateway = maker.ec2(Kind.GATEWAY, "gateway", "CreateInternetGateway", "InternetGateway", "internet-gateway")
    if not any(one.get("VpcId") == vpc for one in gateway.data.get("Attachments") or ()):
        parameters = {"InternetGatewayId": gateway.name, "VpcId": vpc}
        maker.act("attach the internet gateway", "ec2", "AttachInternetGateway", parameters)
    subnets = [
        maker.ec2(
            *(Kind.SUBNET, place.part, "CreateSubnet", "Subnet", "subnet"),
            VpcId=vpc,
            CidrBlock=str(place.block),
            AvailabilityZoneId=place.zone_id,
            more=place.tags,
        )
        for place in places(maker)
    ]
    of = {
        part: [one for one in subnets if one.part.startswith(f"{part}-")] for part in (network.PUBLIC, network.PRIVATE)
    }
    routes(maker, network.PUBLIC, vpc, {"GatewayId": gateway.name}, of[network.PUBLIC])
    routes(maker, network.PRIVATE, vpc, {"NatGatewayId": nat(maker)}, of[network.PRIVATE])
    return subnets


def places(maker: Maker) -> list[Place]:
    """Subnets of the VPC; zones that an earlier run has chosen stay."""
    if maker.cluster.vpc is None:
        return []
    found = [(OUR_PART.fullmatch(one.part), one) for one in maker.state.of(Kind.SUBNET) if one.ours]
    kept = {int(part[1]): str(one.data["AvailabilityZoneId"]) for part, one in found if part}
    filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
    request = Request("list the zones", "ec2", "DescribeAvailabilityZones", "AvailabilityZones", {"Filters": filters})
    rows = maker.aws.read(request, lambda answer: answer)
    available = [str(one["ZoneId"]) for one in rows if one.get("State") == "available"]
    zones = network.choose_zones(available, maker.design.needed_zones, kept)
    return network.places(maker.cluster.vpc, zones)


def nat(maker: Maker) -> str:
    """Id of the NAT gateway, once it is available."""
    address = maker.ec2(Kind.ADDRESS, "nat", "AllocateAddress", "", "elastic-ip", Domain="vpc")
    subnet = maker.needed(Kind.SUBNET, f"{network.PUBLIC}-0")
    content: dict[str, Any] = {"SubnetId": subnet.name, "AllocationId": address.name}
    made = maker.ec2(
        *(Kind.NAT, "nat", "CreateNatGateway", "NatGateway", "natgateway"),
        **content,
        ClientToken=maker.token("nat", content),
    )

    def poll() -> tuple[str | None, str]:
        parameters = {"NatGatewayIds": [made.name]}
        request = Request("read the NAT gateway", "ec2", "DescribeNatGateways", "NatGateways", parameters)
        rows = states.described(maker.aws, {"nat": request})["nat"]
        if not rows:
            return None, "not listed yet"
        row = rows[0]
        if row["State"] == "failed":
            wrong = f"{row.get('FailureMessage') or 'AWS names no reason'} ({row.get('FailureCode') or 'no code'})"
            hint = "remove the cause, run `gpuctl eks destroy`, and make it again"
            raise GpuctlError("make the NAT gateway", wrong, hint)
        return (made.name if row["State"] == "available" else None), str(row["State"])

    return maker.waiter.until(NAT_UP, poll) if made.state != "available" else made.name


def routes(maker: Maker, part: str, vpc: str, target: Mapping[str, str], subnets: Sequence[Object]) -> None:
    """A route table with a default route to `target`, and the subnets that use it."""
    content: dict[str, Any] = {"VpcId": vpc}
    table = maker.ec2(
        *(Kind.ROUTES, part, "CreateRouteTable", "RouteTable", "route-table"),
        **content,
        ClientToken=maker.token(f"routes {part}", content),
    )
    parameters = {"RouteTableId": table.name, "DestinationCidrBlock": ANYWHERE, **target}
    default = next((one for one in table.data.get("Routes") or () if one.get("DestinationCidrBlock") == ANYWHERE), None)
    if default is None:
        maker.act(f"add the default route of the {part} subnets", "ec2", "CreateRoute", parameters)
    elif default.get("State") != "active" or not target.items() <= default.items():
        maker.act(f"replace the default route of the {part} subnets", "ec2", "ReplaceRoute", parameters)
    used = {one.get("SubnetId") for one in table.data.get("Associations") or ()}
    for subnet in subnets:
        if subnet.name not in used:
            parameters = {"RouteTableId": table.name, "SubnetId": subnet.name}
            maker.act(f"use the route table in {subnet.part}", "ec2", "AssociateRouteTable", parameters)


def efa_group(maker: Maker) -> str:
    """Id of the security group with EFA's rules, all traffic from and to itself; "" if no group has EFA."""
    if not any(one.has_efa for one in maker.design.networks.values()):
        return ""
    made = maker.ec2(
        *(Kind.SECURITY_GROUP, EFA_GROUP, "CreateSecurityGroup", "", "security-group"),
        GroupName=object_name(maker.cluster.name, EFA_GROUP),
        Description=f"EFA between the nodes of {maker.cluster.name}",
        VpcId=maker.vpc,
    )
    rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": made.name}]}]
    for direction, member in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
        pairs = [pair for one in made.data.get(member) or () for pair in one.get("UserIdGroupPairs") or ()]
        if not any(pair.get("GroupId") == made.name for pair in pairs):
            parameters = {"GroupId": made.name, "IpPermissions": rule}
            _allow(maker, direction, parameters)
    return made.name


def _allow(maker: Maker, direction: str, parameters: Mapping[str, Any]) -> None:
    try:
        maker.act("add EFA's rule", "ec2", f"AuthorizeSecurityGroup{direction}", parameters)
    except GpuctlError as error:
        if code_of(error) != "InvalidPermission.Duplicate":
            raise
