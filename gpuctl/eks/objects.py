"""Objects of a cluster in AWS: their kinds, names and tags, by which they are recognized after any interruption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

CLUSTER, REGION, PART = "gpuctl:cluster", "gpuctl:region", "gpuctl:part"
EXPIRES, CONTENT = "gpuctl:expires", "gpuctl:content"
ROLE_PATH = "/gpuctl/"  # of the first role alone: managed node groups do not take a role with a path
SERVICES = {"cluster": "eks.amazonaws.com", "node": "ec2.amazonaws.com"}  # that the roles trust
MOST_ROLE_NAME = 64
MOST_OBJECT_NAME = 128  # of a launch template
EFA_GROUP = "efa"  # part of the security group


class Kind(StrEnum):
    """Sort of object, as AWS names it."""

    ROLE = "IAM role"
    VPC = "VPC"
    GATEWAY = "internet gateway"
    SUBNET = "subnet"
    ROUTES = "route table"
    ADDRESS = "Elastic IP"
    NAT = "NAT gateway"
    SECURITY_GROUP = "security group"
    CLUSTER = "cluster"
    ENTRY = "access entry"
    ADDON = "addon"
    PLACEMENT = "placement group"
    TEMPLATE = "launch template"
    GROUP = "node group"
    FARGATE = "Fargate profile"
    INSTANCE = "instance"
    INTERFACE = "network interface"
    LOAD_BALANCER = "load balancer"
    VOLUME = "volume"
    ENDPOINT = "VPC endpoint"
    LOG_GROUP = "log group"
    TARGET_GROUP = "target group"
    SNAPSHOT = "snapshot"
    REPOSITORY = "ECR repository"
    STACK = "CloudFormation stack"
    OTHER = "tagged resource"  # of a service that is searched by tag alone


# They cost money as long as they exist; a security group or a role does not.
COSTLY = frozenset(
    [
        *(Kind.ADDRESS, Kind.NAT, Kind.CLUSTER, Kind.GROUP, Kind.FARGATE, Kind.INSTANCE, Kind.LOAD_BALANCER),
        *(Kind.VOLUME, Kind.ENDPOINT, Kind.LOG_GROUP, Kind.SNAPSHOT, Kind.REPOSITORY),
    ]
)


@dataclass(frozen=True)
class Object:
    """An object in AWS. `part`: its place in the cluster, such as private-0, or the name of a node group. `ours`: True
    if it has gpuctl's tag of this cluster. `data`: AWS's answer."""

    kind: Kind
    name: str
    part: str = ""
    state: str = ""
    ours: bool = False
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        part = f" ({self.part})" if self.part not in ("", self.name) else ""
        return f"{self.kind} {self.name}{part}"


@dataclass
class State:
    """Objects of one cluster. A change is added as soon as AWS has confirmed it."""

    cluster: str
    region: str
    objects: list[Object] = field(default_factory=list)

    def of(self, kind: Kind) -> list[Object]:
        return [one for one in self.objects if one.kind is kind]

    def get(self, kind: Kind, part: str) -> Object | None:
        """The object of a part; None for none. With several, the first."""
        return next((one for one in self.objects if one.kind is kind and one.part == part), None)

    def add(self, item: Object) -> None:
        self.objects = [one for one in self.objects if (one.kind, one.name) != (item.kind, item.name)] + [item]

    def duplicates(self) -> list[Object]:
        """Objects of ours beyond the first of their part."""
        seen = set[tuple[Kind, str]]()
        extra = []
        for one in self.objects:
            if one.ours and (one.kind, one.part) in seen:
                extra.append(one)
            seen.add((one.kind, one.part))
        return extra

    @property
    def first_role(self) -> Object | None:
        """The role of the control plane, which is made first and removed last."""
        return self.get(Kind.ROLE, "cluster")


# ---- names and tags --------------------------------------------------------------------------------------------------


def role_name(cluster: str, region: str, part: str) -> str:
    """Name of a role: roles are of the whole account, so that the region is a part of it."""
    whole = f"gpuctl-{cluster}-{region}-{part}"
    if len(whole) <= MOST_ROLE_NAME:
        return whole
    short = hashlib.sha256(f"{cluster} {region}".encode()).hexdigest()[:12]
    return f"gpuctl-{cluster[:30]}-{short}-{part}"


def object_name(cluster: str, part: str) -> str:
    """Name of a launch template, placement group or security group. Names of clusters have no dot: a-b with a part c
    is not a with b-c."""
    whole = f"gpuctl-{cluster}.{part}"
    if len(whole) <= MOST_OBJECT_NAME:
        return whole
    short = hashlib.sha256(cluster.encode()).hexdigest()[:12]
    return f"gpuctl-{cluster[:30]}-{short}.{part}"


def expiry(made: datetime, ttl_hours: float | None) -> str:
    """Text of the tag with the end of the time to live, "" for none."""
    return (made + timedelta(hours=ttl_hours)).strftime("%Y-%m-%dT%H:%M:%SZ") if ttl_hours is not None else ""


def expires(item: Object) -> datetime | None:
    """End of the time to live from the tags; None for none, or for a text that is no time. UTC without a zone."""
    try:
        end = datetime.fromisoformat(item.tags.get(EXPIRES, ""))
    except ValueError:
        return None
    return end if end.tzinfo is not None else end.replace(tzinfo=UTC)


def tags(cluster: str, region: str, part: str, more: Mapping[str, str]) -> dict[str, str]:
    """Tags of an object of ours; those of the user cannot replace them."""
    return {**more, "Name": object_name(cluster, part), CLUSTER: cluster, REGION: region, PART: part}


def tag_list(plain: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags in the form of EC2 and IAM."""
    return [{"Key": key, "Value": value} for key, value in plain.items()]


def tag_mapping(answer: Mapping[str, Any]) -> dict[str, str]:
    """Tags of an answer, in either form."""
    found = answer.get("Tags") or answer.get("tags") or answer.get("TagSet") or {}
    return dict(found) if isinstance(found, Mapping) else {str(one["Key"]): str(one["Value"]) for one in found}


def token(first_role_id: str, part: str, content: Any = "") -> str:
    """Client request token: equal for equal requests of one life of a cluster, by the id of its first role.

    A cluster that is removed and made again has another role, so that AWS does not answer with what was removed.
    """
    return hashlib.sha256(f"{first_role_id} {part} {digest(content)}".encode()).hexdigest()[:48]


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


# ---- answers of AWS --------------------------------------------------------------------------------------------------

# Kind -> member with the id, member with the state.
MEMBERS: Mapping[Kind, tuple[str, str]] = {
    Kind.ROLE: ("RoleName", ""),
    Kind.VPC: ("VpcId", "State"),
    Kind.GATEWAY: ("InternetGatewayId", ""),
    Kind.SUBNET: ("SubnetId", "State"),
    Kind.ROUTES: ("RouteTableId", ""),
    Kind.ADDRESS: ("AllocationId", ""),
    Kind.NAT: ("NatGatewayId", "State"),
    Kind.SECURITY_GROUP: ("GroupId", ""),
    Kind.CLUSTER: ("name", "status"),
    Kind.ENTRY: ("principalArn", ""),
    Kind.ADDON: ("addonName", "status"),
    Kind.PLACEMENT: ("GroupName", "State"),
    Kind.TEMPLATE: ("LaunchTemplateId", ""),
    Kind.GROUP: ("nodegroupName", "status"),
    Kind.FARGATE: ("fargateProfileName", "status"),
    Kind.INSTANCE: ("InstanceId", ""),
    Kind.INTERFACE: ("NetworkInterfaceId", "Status"),
    Kind.LOAD_BALANCER: ("LoadBalancerName", ""),
    Kind.VOLUME: ("VolumeId", "State"),
    Kind.ENDPOINT: ("VpcEndpointId", "State"),
    Kind.LOG_GROUP: ("logGroupName", ""),
    Kind.TARGET_GROUP: ("TargetGroupName", ""),
    Kind.SNAPSHOT: ("SnapshotId", "State"),
    Kind.REPOSITORY: ("repositoryName", ""),
    Kind.STACK: ("StackName", "StackStatus"),
    Kind.OTHER: ("ResourceARN", ""),
}
IN_CLUSTER = (Kind.ENTRY, Kind.ADDON, Kind.GROUP, Kind.FARGATE)


def from_answer(kind: Kind, answer: Mapping[str, Any], cluster: str, region: str) -> Object:
    """An object from AWS's answer; KeyError if it has no id."""
    name_member, state_member = MEMBERS[kind]
    name, found = str(answer[name_member]), tag_mapping(answer)
    ours = found.get(CLUSTER) == cluster and found.get(REGION) == region
    part = found.get(PART, "") or (name if kind in IN_CLUSTER else "")
    state = str(answer.get(state_member) or "") if state_member else ""
    return Object(kind, name, part, state, ours, found, answer)


def costly(objects: Sequence[Object]) -> Iterator[Object]:
    """Objects that cost money as long as they exist. An endpoint for a gateway costs nothing."""
    for one in objects:
        if one.kind in COSTLY and one.data.get("VpcEndpointType") != "Gateway":
            yield one
