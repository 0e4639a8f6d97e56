"""Read the network around subnets; what AWS refuses stays an error in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, Request, converted
from gpuctl.subnets.model import Subnet
from gpuctl.subnets.network import Network, Vpc, read_acl, read_endpoint, read_nat, read_table

LISTS = {
    "tables": ("list route tables", "DescribeRouteTables", "RouteTables", "Filters"),
    "acls": ("list network ACLs", "DescribeNetworkAcls", "NetworkAcls", "Filters"),
    "endpoints": ("list VPC endpoints", "DescribeVpcEndpoints", "VpcEndpoints", "Filters"),
    "nats": ("list NAT gateways", "DescribeNatGateways", "NatGateways", "Filter"),
    "vpcs": ("list VPCs", "DescribeVpcs", "Vpcs", "Filters"),
    "dhcp": ("list DHCP options", "DescribeDhcpOptions", "DhcpOptions", ""),
}
ATTRIBUTES = ("enableDnsSupport", "enableDnsHostnames")


def read_network(aws: Aws, subnets: Sequence[Subnet]) -> Network:
    """Routes, ACLs, endpoints, NAT gateways and DNS settings of the VPCs of these subnets, all asked for at once."""
    vpcs = sorted({subnet.vpc for subnet in subnets})
    filters = [{"Name": "vpc-id", "Values": vpcs}]
    requests: dict[tuple[str, str], Request] = {
        (name, ""): Request(doing, "ec2", operation, items, {key: filters} if key else {})
        for name, (doing, operation, items, key) in LISTS.items()
    }
    for vpc in vpcs:
        for attribute in ATTRIBUTES:
            parameters = {"VpcId": vpc, "Attribute": attribute}
            doing = f"read {attribute} of {vpc}"
            requests[attribute, vpc] = Request(doing, "ec2", "DescribeVpcAttribute", "", parameters)
    answers = aws.read_all(requests, lambda answer: answer)
    return Network(
        {vpc: _vpc(vpc, answers) for vpc in vpcs},
        converted(answers["tables", ""], lambda rows: [read_table(row) for row in rows], "read a route table"),
        converted(answers["acls", ""], lambda rows: [read_acl(row) for row in rows], "read a network ACL"),
        converted(answers["endpoints", ""], lambda rows: [read_endpoint(row) for row in rows], "read a VPC endpoint"),
        converted(answers["nats", ""], lambda rows: [read_nat(row) for row in rows], "read a NAT gateway"),
    )


def _vpc(name: str, answers: Mapping[tuple[str, str], list[Any] | GpuctlError]) -> Vpc | GpuctlError:
    """A VPC by its attributes and DHCP options; the first error of what is needed for it."""
    support, hostnames = (answers[attribute, name] for attribute in ATTRIBUTES)
    listed, options = answers["vpcs", ""], answers["dhcp", ""]
    if isinstance(listed, GpuctlError):
        return listed
    if isinstance(options, GpuctlError):
        return options
    if isinstance(support, GpuctlError):
        return support
    if isinstance(hostnames, GpuctlError):
        return hostnames
    vpc = next((one for one in listed if one["VpcId"] == name), None)
    if vpc is None:  # of another account, which shares the subnet
        return GpuctlError(f"read the VPC {name}", "AWS does not list it", "ask the account that owns it")
    associated = vpc.get("CidrBlockAssociationSet") or [vpc]
    states = [(one["CidrBlock"], (one.get("CidrBlockState") or {}).get("State", "associated")) for one in associated]
    return Vpc(
        name,
        [IPv4Network(block) for block, state in states if state == "associated"],
        bool(support[0]["EnableDnsSupport"]["Value"]),
        bool(hostnames[0]["EnableDnsHostnames"]["Value"]),
        _resolvers(vpc.get("DhcpOptionsId", ""), options),
    )


def _resolvers(name: str, options: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Resolvers of DHCP options; None if they are not listed. The id "default" stands for none at all."""
    chosen = next((one for one in options if one["DhcpOptionsId"] == name), None)
    if chosen is None:
        return [] if name == "default" else None
    return [
        str(value["Value"])
        for item in chosen.get("DhcpConfigurations") or ()
        if item.get("Key") == "domain-name-servers"
        for value in item.get("Values") or ()
    ]
