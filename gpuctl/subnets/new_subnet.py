"""A new subnet: a free block of a VPC, and the text that makes it for Terraform or CloudFormation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named

DOING = "add a subnet"
SHORTEST, LONGEST = 16, 28  # prefix lengths that AWS takes for a subnet
# Tags by which the VPC CNI and load balancers choose subnets.
ROLES: Mapping[str, tuple[str, str]] = {
    "cni": ("kubernetes.io/role/cni", "1"),
    "internal-elb": ("kubernetes.io/role/internal-elb", "1"),
    "elb": ("kubernetes.io/role/elb", "1"),
}


@dataclass(frozen=True)
class NewSubnet:
    """A subnet to make. `reserved`: a block for prefixes alone, or None. `zone_id`: such as use1-az6."""

    vpc: str
    block: IPv4Network
    zone_id: str
    name: str
    tags: Mapping[str, str]
    reserved: IPv4Network | None


def choose(text: str, vpc_blocks: Sequence[IPv4Network], taken: Sequence[IPv4Network]) -> IPv4Network:
    """The block `text` names ("10.0.8.0/21"), or the first free one of a size ("/21").

    InvalidInput if it is no block, lies outside the VPC, overlaps a subnet, or if no block of the size is free.
    """
    if text.startswith("/"):
        return _first_free(_length(text[1:]), vpc_blocks, taken)
    try:
        block = IPv4Network(text)
    except ValueError as error:
        raise InvalidInput(DOING, f"--cidr: {error}", "write it as 10.0.8.0/21, or only its size, /21") from error
    _length(str(block.prefixlen))
    if not any(block.subnet_of(outer) for outer in vpc_blocks):
        outer = named(map(str, vpc_blocks)) or "none"
        raise InvalidInput(DOING, f"{block} is not in the VPC, which has {outer}", "choose a block in it, or a size")
    if overlapping := [str(one) for one in taken if one.overlaps(block)]:
        hint = f"--cidr /{block.prefixlen} chooses a free block of this size"
        raise InvalidInput(DOING, f"{block} overlaps the subnet {named(overlapping)}", hint)
    return block


def _length(text: str) -> int:
    if not text.isdecimal() or not SHORTEST <= int(text) <= LONGEST:
        raise InvalidInput(DOING, f"/{text} is no size of a subnet", f"choose one from /{SHORTEST} to /{LONGEST}")
    return int(text)


def _first_free(length: int, vpc_blocks: Sequence[IPv4Network], taken: Sequence[IPv4Network]) -> IPv4Network:
    for outer in sorted(vpc_blocks):
        size, first, end = 1 << (32 - length), int(outer.network_address), int(outer.broadcast_address) + 1
        while first + size <= end:
            candidate = IPv4Network((first, length))
            overlapping = [one for one in taken if one.overlaps(candidate)]
            if not overlapping:
                return candidate
            behind = max(int(one.broadcast_address) + 1 for one in overlapping)
            first = -(-behind // size) * size
    raise InvalidInput(
        DOING, f"the VPC has no free block of /{length}", "choose a smaller one, or add a CIDR to the VPC"
    )


def reserve(block: IPv4Network, text: str) -> IPv4Network | None:
    """The block for prefixes: None for "", the upper half of the subnet for "half", else the one that is named."""
    if not text:
        return None
    if text == "half":
        if block.prefixlen >= LONGEST:
            raise InvalidInput(DOING, f"{block} is too small to reserve half of it", "choose a larger block")
        return list(block.subnets())[1]
    try:
        reserved = IPv4Network(text)
    except ValueError as error:
        raise InvalidInput(DOING, f"--prefixes: {error}", "write it as 10.0.8.0/22, or half") from error
    if not reserved.subnet_of(block) or reserved.prefixlen > LONGEST:
        raise InvalidInput(DOING, f"--prefixes: {reserved} is no block of at least /28 in {block}", "choose another")
    return reserved


# ---- Terraform -------------------------------------------------------------------------------------------------------


def terraform(new: NewSubnet) -> str:
    """Terraform text, formatted as `terraform fmt` does it."""
    width = max(len(_quoted(key)) for key in ("Name", *new.tags))
    tags = "\n".join(f"    {_quoted(key):{width}} = {_quoted(value)}" for key, value in new.tags.items())
    parts = [
        _variable("vpc_id", "VPC of the subnet", new.vpc),
        _variable("cidr_block", "Block of the subnet; free when this file was written", str(new.block)),
        _variable("availability_zone_id", "Zone by its id, which is the same in every account", new.zone_id),
        _variable("name", "Name of the subnet", new.name),
        'resource "aws_subnet" "this" {\n'
        "  vpc_id               = var.vpc_id\n"
        "  cidr_block           = var.cidr_block\n"
        "  availability_zone_id = var.availability_zone_id\n\n"
        "  tags = {\n"
        f"    {_quoted('Name'):{width}} = var.name\n" + (f"{tags}\n" if tags else "") + "  }\n}\n",
    ]
    if new.reserved is not None:
        parts.append(
            _variable("prefix_cidr_block", "Part of the subnet for prefixes of the VPC CNI", str(new.reserved))
        )
        parts.append(
            'resource "aws_ec2_subnet_cidr_reservation" "prefixes" {\n'
            "  subnet_id        = aws_subnet.this.id\n"
            "  cidr_block       = var.prefix_cidr_block\n"
            '  reservation_type = "prefix"\n'
            '  description      = "Prefixes of the VPC CNI"\n}\n'
        )
    parts.append('output "subnet_id" {\n  value = aws_subnet.this.id\n}\n')
    return "\n".join(parts)


def _variable(name: str, description: str, default: str) -> str:
    return (
        f'variable "{name}" {{\n  type        = string\n  description = {_quoted(description)}\n'
        f"  default     = {_quoted(default)}\n}}\n"
    )


def _quoted(text: str) -> str:
    """A string of Terraform: as in JSON, with its templates escaped."""
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


# ---- CloudFormation --------------------------------------------------------------------------------------------------


def cloudformation(new: NewSubnet) -> Mapping[str, object]:
    """A CloudFormation template as plain values. It has no resource for reservations of blocks."""
    if new.reserved is not None:
        hint = "use --output terraform, or run `aws ec2 create-subnet-cidr-reservation` after it"
        raise InvalidInput(DOING, "CloudFormation cannot reserve a block for prefixes", hint)
    tags = [{"Key": "Name", "Value": {"Ref": "Name"}}, *({"Key": k, "Value": v} for k, v in new.tags.items())]
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Subnet {new.name}",
        "Parameters": {
            "VpcId": {"Type": "AWS::EC2::VPC::Id", "Default": new.vpc},
            "CidrBlock": {"Type": "String", "Default": str(new.block)},
            "AvailabilityZoneId": {"Type": "String", "Default": new.zone_id},
            "Name": {"Type": "String", "Default": new.name},
        },
        "Resources": {
            "Subnet": {
                "Type": "AWS::EC2::Subnet",
                "Properties": {
                    "VpcId": {"Ref": "VpcId"},
                    "CidrBlock": {"Ref": "CidrBlock"},
                    "AvailabilityZoneId": {"Ref": "AvailabilityZoneId"},
                    "Tags": tags,
                },
            }
        },
        "Outputs": {"SubnetId": {"Value": {"Ref": "Subnet"}}},
    }
