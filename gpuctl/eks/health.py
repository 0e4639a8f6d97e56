"""Health issues of node groups and addons: AWS's codes with their usual causes, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.text import named


@dataclass(frozen=True)
class Issue:
    """A health issue. `resources`: ids of instances and other objects."""

    code: str
    message: str
    resources: Sequence[str] = ()

    def __str__(self) -> str:
        where = f" ({named(self.resources, 3)})" if self.resources else ""
        return f"{self.code}: {self.message.strip().rstrip('.')}{where}"


JOIN = "check routes and NAT of the subnets (`gpuctl subnets diagnose`), the node role's access entry, and the image"
CAPACITY = "AWS has no such instances now: try another zone, type or capacity, or wait and resume"
QUOTA = "ask for more in Service Quotas, or lower the size"
ADDRESSES = "`gpuctl subnets` names what holds addresses: free some, or add a subnet"
TEMPLATE = "do not edit or delete what gpuctl made; destroy the cluster, and make it again"
PERMISSION = "compare the policies of the node role and of this login"
# Parts of messages of Auto Scaling, most telling first: they name what the code AsgInstanceLaunchFailures leaves open.
LAUNCH_FAILURES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("InsufficientInstanceCapacity", "sufficient capacity", "UnfulfillableCapacity", "MaxSpotInstanceCount"),
        CAPACITY,
    ),
    (("VcpuLimitExceeded", "InstanceLimitExceeded", "vCPU capacity than your current"), QUOTA),
    (("ReservationCapacityExceeded",), "the reservation has no free instance: lower the size, or end what uses it"),
    (("InsufficientFreeAddresses", "InsufficientCidrBlocks", "sufficient free Ipv4"), ADDRESSES),
    (("UnauthorizedOperation", "AccessDenied"), PERMISSION),
    (("Unsupported",), "the zone does not offer this type or interface: `gpuctl eks plan` names the zones that do"),
    (("capacity-block", "Capacity Block", "CapacityBlock"), "wait until the block is active, or keep desired at 0"),
)
HINTS: Mapping[str, str] = {
    "NodeCreationFailure": JOIN,
    "InstanceLimitExceeded": QUOTA,
    "InsufficientFreeAddresses": ADDRESSES,
    "AccessDenied": PERMISSION,
    "IamNodeRoleNotFound": TEMPLATE,
    "Ec2LaunchTemplateNotFound": TEMPLATE,
    "Ec2LaunchTemplateVersionMismatch": TEMPLATE,
    "Ec2SecurityGroupNotFound": TEMPLATE,
    "Ec2SubnetNotFound": "a subnet was deleted: correct the file",
    "Ec2SubnetInvalidConfiguration": "a subnet gives no public address, and has no route to a NAT gateway",
    "Ec2InstanceTypeDoesNotExist": "the region or zone does not offer this type: `gpuctl eks plan`",
    "AmiIdNotFound": "the image was withdrawn: choose another `ami`",
    "ClusterUnreachable": "the nodes cannot reach the control plane: check `private_endpoint`, routes and groups",
    "InsufficientNumberOfReplicas": "its pods have no node: start one that has no taint, or raise desired",
    "ConfigurationConflict": "another program changed its objects: compare them",
}


def issues(answer: Mapping[str, Any]) -> list[Issue]:
    """Issues of a node group, addon or cluster, each once."""
    rows: Iterable[Mapping[str, Any]] = (answer.get("health") or {}).get("issues") or ()
    found = [
        Issue(str(row.get("code") or ""), str(row.get("message") or ""), tuple(row.get("resourceIds") or ()))
        for row in rows
    ]
    return list(dict.fromkeys(found))


def hint(issue: Issue) -> str:
    """Action for an issue, "" if none is known."""
    if issue.code in ("AsgInstanceLaunchFailures", "NodeCreationFailure", "Unknown"):
        for parts, action in LAUNCH_FAILURES:
            if any(part in issue.message for part in parts):
                return action
    return HINTS.get(issue.code, "")
