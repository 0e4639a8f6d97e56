"""Which subnets a command is about; apart, so that `--help` loads nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubnetsRequest:
    """Subnets to list: of one `vpc`, of one EKS `cluster`, those with the ids `subnet`, or all of the region.

    `region` and `aws_profile`: "" for those of the AWS configuration.
    """

    vpc: str
    cluster: str
    subnet: tuple[str, ...]
    region: str
    aws_profile: str


@dataclass(frozen=True)
class AddRequest:
    """A subnet to add to a VPC. `cidr`: a block, or a size such as "/21". `az`: name or id of a zone. `prefixes`: a
    block to reserve for prefixes, "half", or "". `role`: keys of `new_subnet.ROLES`."""

    vpc: str
    cidr: str
    az: str
    name: str
    prefixes: str
    role: tuple[str, ...]
    cluster: str
    region: str
    aws_profile: str


@dataclass(frozen=True)
class ForecastRequest:
    """Nodes to place in the subnets of `selection`. `instance_type`: such as p5.48xlarge. `pods`: on each node, with an
    address of their own. `layout`: a value of `node_type.Layout`. `cni`: settings of the VPC CNI as NAME=VALUE."""

    selection: SubnetsRequest
    instance_type: str
    nodes: int
    pods: int
    layout: str
    cni: tuple[str, ...]
