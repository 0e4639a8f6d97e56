"""Launch template and managed node group of a group of nodes, as AWS takes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.eks.model import Capacity, EksCluster, NodeGroup
from gpuctl.eks.objects import tag_list

EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
CAPACITY_TYPES = {
    Capacity.ON_DEMAND: "ON_DEMAND",
    Capacity.SPOT: "SPOT",
    Capacity.RESERVATION: "ON_DEMAND",
    Capacity.BLOCK: "CAPACITY_BLOCK",
}
BOUNDARY = "==GPUCTL=="
PLAIN = "interface"
# Addons of every cluster; they come before the nodes, except those whose pods need a node.
BEFORE_NODES, AFTER_NODES = ("vpc-cni", "kube-proxy"), ("coredns",)


@dataclass(frozen=True)
class Nic:
    """Network interface of a new node; `kind`: interface, efa or efa-only."""

    card: int
    device: int
    kind: str


@dataclass(frozen=True)
class NodeNetwork:
    """Interfaces of the nodes of a group. `most_pods`: pods that can have an address of their own, without prefixes."""

    nics: Sequence[Nic]
    most_pods: int

    @property
    def has_efa(self) -> bool:
        return any(one.kind != PLAIN for one in self.nics)

    @property
    def takes_place(self) -> bool:
        """True if an EFA interface takes the place of one with addresses, which the type's pod limit does not know."""
        first = self.nics[0]
        return any(one.card == first.card and one.kind != PLAIN for one in self.nics[1:])


@dataclass(frozen=True)
class LaunchOptions:
    """Options with which nodes start. `placement`: name of a placement group, "" for none. `max_pods`: None for the
    type's default."""

    security_groups: Sequence[str]
    placement: str = ""
    max_pods: int | None = None


def placement_group(group: NodeGroup, default_name: str) -> str:
    """Name of the placement group, "" for none."""
    return {"none": "", "cluster": default_name}.get(group.placement, group.placement)


def max_pods(group: NodeGroup, network: NodeNetwork, has_prefixes: bool) -> int | None:
    """Limit of pods that a node is started with; None for the type's default, which is right without EFA on card 0."""
    if group.max_pods is not None:
        return group.max_pods
    if network.takes_place and not has_prefixes:
        return network.most_pods + 2  # two of every node use the host's network. Source: Amazon EKS user guide
    return None


def launch_template(
    group: NodeGroup,
    network: NodeNetwork,
    start: LaunchOptions,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """LaunchTemplateData. The interfaces name their security groups, as EKS adds none then."""
    data: dict[str, Any] = {
        "InstanceType": group.instance_type,
        "BlockDeviceMappings": [_disk(group)],
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "NetworkInterfaces": [_interface(one, start.security_groups) for one in network.nics],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(tags)} for kind in ("instance", "volume", "network-interface")
        ],
    }
    if start.placement:
        data["Placement"] = {"GroupName": start.placement}
    if group.reservation:
        target = {"CapacityReservationTarget": {"CapacityReservationId": group.reservation}}
        data["CapacityReservationSpecification"] = target
    if group.capacity is Capacity.BLOCK:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if start.max_pods is not None:
        data["UserData"] = base64.b64encode(_user_data(group, start.max_pods).encode()).decode()
    return data


def _disk(group: NodeGroup) -> dict[str, Any]:
    # Bottlerocket keeps images and pods on its second disk.
    device = "/dev/xvdb" if group.ami.startswith("BOTTLEROCKET") else "/dev/xvda"
    ebs = {"VolumeSize": group.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return {"DeviceName": device, "Ebs": ebs}


def _interface(one: Nic, security_groups: Sequence[str]) -> dict[str, Any]:
    return {
        "DeviceIndex": one.device,
        "NetworkCardIndex": one.card,
        "InterfaceType": one.kind,
        "Groups": list(security_groups),
        "DeleteOnTermination": True,
    }


def _user_data(group: NodeGroup, pods: int) -> str:
    if group.ami.startswith("BOTTLEROCKET"):
        return f"[settings.kubernetes]\nmax-pods = {pods}\n"
    return (
        f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{BOUNDARY}"\n\n--{BOUNDARY}\n'
        "Content-Type: application/node.eks.aws\n\n"
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n"
        f"      maxPods: {pods}\n\n--{BOUNDARY}--\n"
    )


def node_group(
    cluster: EksCluster, group: NodeGroup, role: str, subnets: Sequence[str], template: Mapping[str, str]
) -> dict[str, Any]:
    """Parameters of CreateNodegroup, without tags and token. `template`: id and version of the launch template."""
    return {
        "clusterName": cluster.name,
        "nodegroupName": group.name,
        "scalingConfig": {"minSize": group.min, "maxSize": group.max, "desiredSize": group.desired},
        "subnets": list(subnets),
        "nodeRole": role,
        "amiType": group.ami,
        "labels": dict(group.labels),
        "taints": [taint(text) for text in group.taints],
        "capacityType": CAPACITY_TYPES[group.capacity],
        "launchTemplate": dict(template),
    }


def taint(text: str) -> dict[str, str]:
    """EKS's form of a taint such as nvidia.com/gpu=present:NoSchedule."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": EFFECTS[effect]}


def addons(cluster: EksCluster) -> tuple[list[str], list[str]]:
    """Addons to make before the nodes, and after them."""
    more = [name for name in cluster.addons if name not in (*BEFORE_NODES, *AFTER_NODES)]
    return list(BEFORE_NODES), [*AFTER_NODES, *more]


def addon_values(cluster: EksCluster, addon: str) -> str:
    """Configuration of an addon as JSON, "" for its defaults.

    With taints on every group, the DNS server would have no node: it then tolerates those taints.
    """
    if addon == "vpc-cni" and cluster.cni:
        return json.dumps({"env": dict(setting.split("=", 1) for setting in cluster.cni)}, sort_keys=True)
    if addon == "coredns" and all(group.taints for group in cluster.node_groups):
        taints = sorted({text for group in cluster.node_groups for text in group.taints})
        tolerations = [
            {"key": text.rpartition(":")[0].partition("=")[0], "operator": "Exists", "effect": text.rpartition(":")[2]}
            for text in taints
        ]
        return json.dumps({"tolerations": tolerations}, sort_keys=True)
    return ""
