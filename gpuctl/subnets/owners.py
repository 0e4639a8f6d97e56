"""Owner of each network interface, and the interfaces that the VPC CNI left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuctl.subnets.model import Interface, Kind, Owner, Subnet

INSTANCE_TAG = "node.k8s.amazonaws.com/instance_id"
CREATED_TAG = "node.k8s.amazonaws.com/createdAt"
CLUSTER_TAG = "cluster.k8s.amazonaws.com/name"
CNI_DESCRIPTION = "aws-K8S-"
LEAK_AGE = timedelta(minutes=5)  # the VPC CNI attaches a new interface well before

# Descriptions that AWS's services write, most telling first. Their group is the owner's name.
DESCRIPTIONS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.BRANCH, re.compile(r"aws-k8s-branch-eni()")),
    (Kind.CNI, re.compile(r"aws-K8S-(i-\w+)")),
    (Kind.CONTROL_PLANE, re.compile(r"Amazon EKS (\S+)")),
    (Kind.NAT, re.compile(r"Interface for NAT Gateway (nat-\w+)")),
    (Kind.ENDPOINT, re.compile(r"VPC Endpoint Interface (vpce-\w+)")),
    (Kind.LOAD_BALANCER, re.compile(r"ELB (?:(?:net|app|gwy)/)?([^/\s]+)")),
    (Kind.LAMBDA, re.compile(r"AWS Lambda VPC ENI[-:]?\s*(\S*)")),
    (Kind.EFS, re.compile(r"EFS mount target for (fs-\w+)")),
    (Kind.RDS, re.compile(r"RDSNetworkInterface()")),
    (Kind.TRANSIT, re.compile(r"Network Interface for Transit Gateway (?:Attachment )?(\S+)")),
    (Kind.ECS, re.compile(r"arn:aws[\w-]*:ecs:\S+?(attachment/\S+)")),
    (Kind.SERVICE, re.compile(r"AWS created network interface for (.+)")),
)
# InterfaceType, which is an open set: both spellings occur in answers.
TYPES: Mapping[str, Kind] = {
    "branch": Kind.BRANCH,
    "nat_gateway": Kind.NAT,
    "natGateway": Kind.NAT,
    "vpc_endpoint": Kind.ENDPOINT,
    "gateway_load_balancer_endpoint": Kind.ENDPOINT,
    "network_load_balancer": Kind.LOAD_BALANCER,
    "load_balancer": Kind.LOAD_BALANCER,
    "gateway_load_balancer": Kind.LOAD_BALANCER,
    "lambda": Kind.LAMBDA,
    "efs": Kind.EFS,
    "transit_gateway": Kind.TRANSIT,
}


def owners(subnets: Iterable[Subnet]) -> dict[str, Owner]:
    """Interface id -> owner. An instance is a node if the VPC CNI has an interface on it, in whichever subnet."""
    interfaces = [interface for subnet in subnets for interface in subnet.interfaces]
    nodes = {instance for interface in interfaces if is_cni(interface) for instance in [interface.instance] if instance}
    return {interface.name: owner(interface, nodes) for interface in interfaces}


def owner(interface: Interface, nodes: Iterable[str] = ()) -> Owner:
    """Owner of one interface; `nodes`: instances that are nodes of a cluster."""
    described = _described(interface)
    if described.kind is Kind.UNKNOWN and interface.instance:
        return Owner(Kind.NODE if interface.instance in nodes else Kind.INSTANCE, interface.instance)
    if described.kind is Kind.UNKNOWN and interface.tags.get(INSTANCE_TAG):
        return Owner(Kind.CNI, interface.tags[INSTANCE_TAG])
    if described.kind is Kind.UNKNOWN and interface.managed:
        return Owner(Kind.SERVICE, interface.requester)
    if described.kind is Kind.UNKNOWN and not interface.attached and interface.status == "available":
        return Owner(Kind.DETACHED, interface.requester)
    return described


def _described(interface: Interface) -> Owner:
    for kind, pattern in DESCRIPTIONS:
        if match := pattern.match(interface.description):
            return Owner(kind, match[1])
    if interface.kind in TYPES:
        return Owner(TYPES[interface.kind])
    return Owner(Kind.RDS) if interface.requester == "amazon-rds" else Owner(Kind.UNKNOWN, interface.requester)


def is_cni(interface: Interface) -> bool:
    """True if the VPC CNI made the interface."""
    return interface.description.startswith(CNI_DESCRIPTION) and interface.kind != "branch"


class Leak(StrEnum):
    """An interface that the VPC CNI may have left behind."""

    NO = "no"
    YES = "leaked"  # every sign
    UNSURE = "UNKNOWN"  # every sign but its age, which nobody recorded


@dataclass(frozen=True)
class Leaked:
    """An interface that is or may be leaked, the instance that had it, and its cluster ("" if its tags lack it)."""

    interface: Interface
    instance: str
    cluster: str
    leak: Leak


def leak(interface: Interface, now: datetime) -> Leak:
    """All signs are needed: made by the VPC CNI by its description and tag, not attached, and older than 5 minutes."""
    made_by_cni = is_cni(interface) and bool(interface.tags.get(INSTANCE_TAG))
    if not made_by_cni or interface.status != "available" or interface.attached:
        return Leak.NO
    try:
        created = datetime.fromisoformat(interface.tags[CREATED_TAG])
    except (KeyError, ValueError):
        return Leak.UNSURE
    if created.tzinfo is None:
        return Leak.UNSURE
    return Leak.YES if now - created > LEAK_AGE else Leak.NO


def leaked(subnet: Subnet, now: datetime, cluster: str = "") -> list[Leaked]:
    """Interfaces of a subnet that are or may be leaked; with `cluster`, only those of this cluster."""
    result = []
    for interface in subnet.interfaces:
        state, of_cluster = leak(interface, now), interface.tags.get(CLUSTER_TAG, "")
        if state is not Leak.NO and cluster in ("", of_cluster):
            result.append(Leaked(interface, interface.tags[INSTANCE_TAG], of_cluster, state))
    return result
