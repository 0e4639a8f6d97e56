"""Launch templates and node groups, for the types of facts that decide them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.eks.model import Capacity, EksCluster, NodeGroup
from gpuctl.eks.node_template import (
    LaunchOptions,
    Nic,
    NodeNetwork,
    addon_values,
    addons,
    launch_template,
    max_pods,
    node_group,
    placement_group,
    taint,
)

GPU = NodeGroup("gpu", "p5.48xlarge", 0, 4, 2, taints=["nvidia.com/gpu:NoSchedule"], labels={"team": "ml"})
BESIDE = NodeNetwork([Nic(0, 0, "interface"), Nic(0, 1, "efa-only"), Nic(1, 0, "efa-only")], 49)
ELSEWHERE = NodeNetwork([Nic(0, 0, "interface"), *(Nic(card, 0, "efa-only") for card in range(1, 17))], 196)
PLAIN = NodeNetwork([Nic(0, 0, "interface")], 28)
SYSTEM = replace(GPU, name="system", taints=[])


def template(group: NodeGroup = GPU, **start: Any) -> dict[str, Any]:
    return launch_template(group, BESIDE, LaunchOptions(["sg-1", "sg-2"], **start), {"gpuctl:cluster": "lab"})


def test_interfaces_are_those_of_the_layout_each_with_its_groups() -> None:
    made = template()["NetworkInterfaces"]
    assert [(one["NetworkCardIndex"], one["DeviceIndex"], one["InterfaceType"]) for one in made] == [
        *[(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")],
    ]
    assert all(one["Groups"] == ["sg-1", "sg-2"] and one["DeleteOnTermination"] for one in made)
    assert not any("SubnetId" in one or "AssociatePublicIpAddress" in one for one in made)


def test_no_placement_group_that_nobody_named() -> None:
    assert "Placement" not in template()
    assert template(placement="near")["Placement"] == {"GroupName": "near"}
    names = [placement_group(replace(GPU, placement=text), "own") for text in ("none", "cluster", "theirs")]
    assert names == ["", "own", "theirs"]


def test_a_block_has_its_market_and_reservation_and_a_reservation_no_market() -> None:
    block = template(replace(GPU, capacity=Capacity.BLOCK, reservation="cr-1"))
    assert block["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}
    assert block["CapacityReservationSpecification"] == target
    reserved = template(replace(GPU, capacity=Capacity.RESERVATION, reservation="cr-1"))
    assert "InstanceMarketOptions" not in reserved
    assert reserved["CapacityReservationSpecification"] == target


@pytest.mark.parametrize(
    ("network", "prefixes", "most", "limit"),
    [(BESIDE, False, None, 51), (BESIDE, True, None, None), (ELSEWHERE, False, None, None), (PLAIN, False, 20, 20)],
)
def test_the_limit_of_pods_counts_an_efa_interface_on_the_first_card(
    network: NodeNetwork, prefixes: bool, most: int | None, limit: int | None
) -> None:
    assert max_pods(replace(GPU, max_pods=most), network, prefixes) == limit


@pytest.mark.parametrize(
    ("ami", "text"), [("AL2023_x86_64_NVIDIA", "maxPods: 51"), ("BOTTLEROCKET_x86_64_NVIDIA", "max-pods = 51")]
)
def test_the_limit_is_in_the_user_data_of_each_image(ami: str, text: str) -> None:
    data = template(replace(GPU, ami=ami), max_pods=51)
    assert text in base64.b64decode(data["UserData"]).decode()
    assert data["BlockDeviceMappings"][0]["DeviceName"] == ("/dev/xvdb" if "BOTTLE" in ami else "/dev/xvda")


def test_what_the_template_has_is_not_in_the_node_group() -> None:
    cluster = EksCluster("lab", "us-east-1", "1.36", [GPU])
    made = node_group(cluster, GPU, "arn", ["subnet-1"], {"id": "lt-1", "version": "1"})
    assert not {"instanceTypes", "diskSize", "remoteAccess"} & made.keys()
    assert made["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 2}
    assert (made["capacityType"], made["taints"]) == ("ON_DEMAND", [{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE"}])


def test_a_taint_with_a_value() -> None:
    assert taint("a/b=c:NoExecute") == {"key": "a/b", "value": "c", "effect": "NO_EXECUTE"}


def test_the_dns_server_tolerates_the_taints_only_if_every_group_has_some() -> None:
    tainted = EksCluster("lab", "us-east-1", "1.36", [GPU], cni=["WARM_IP_TARGET=2"], addons=["coredns", "metrics"])
    values = json.loads(addon_values(tainted, "coredns"))
    assert values == {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}
    assert addon_values(replace(tainted, node_groups=[GPU, SYSTEM]), "coredns") == ""
    assert json.loads(addon_values(tainted, "vpc-cni")) == {"env": {"WARM_IP_TARGET": "2"}}
    assert addons(tainted) == (["vpc-cni", "kube-proxy"], ["coredns", "metrics"])
