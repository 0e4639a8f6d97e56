"""Resources that nodes offer, and the causes of missing ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.eks import device_plugins, node_resources
from gpuctl.eks.device_plugins import AWS_EFA, EFA, NVIDIA, GroupNodes
from gpuctl.eks.node_resources import Observation, PluginPod

GROUP = GroupNodes("p5", "p5.48xlarge", "AL2023_x86_64_NVIDIA", 1, 8, 32, ("nvidia.com/gpu:NoSchedule",))
READY = [{"type": "Ready", "status": "True"}]
LABELS = {"eks.amazonaws.com/nodegroup": "p5", "node.kubernetes.io/instance-type": "p5.48xlarge"}


def node(name: str = "node-0", gpus: str = "8", efas: str = "32", **spec: Any) -> dict[str, Any]:
    offers = {key: one for key, one in (("nvidia.com/gpu", gpus), (EFA, efas)) if one}
    status = {"allocatable": offers, "conditions": READY}
    return {"metadata": {"name": name, "labels": LABELS}, "spec": spec, "status": status}


def made(plugin: device_plugins.Plugin) -> dict[str, Any]:
    item = device_plugins.daemon_set(plugin, [GROUP], "us-east-1")
    item["metadata"]["uid"] = plugin.name
    return item


def pod(plugin: device_plugins.Plugin, summary: str, trouble: str = "") -> PluginPod:
    meta = {"name": "plugin-x", "namespace": "kube-system", "ownerReferences": [{"uid": plugin.name}]}
    return PluginPod({"metadata": meta}, summary, trouble, ready=not trouble)


def observed(*nodes: dict[str, Any], pods: Any = ()) -> Observation:
    return Observation({"p5": nodes}, {one.resource: made(one) for one in (NVIDIA, AWS_EFA)}, {"node-0": list(pods)})


def test_a_group_whose_nodes_offer_all_is_ok() -> None:
    finding = node_resources.judge(GROUP, observed(node()))
    assert (finding.verdict, finding.message) == ("OK", "1 node offers 8 GPUs and 32 EFA interfaces")


@pytest.mark.parametrize(
    ("nodes", "desired", "verdict", "message"),
    [
        ([node()], 2, "FAIL", "1 of 2 desired nodes joined Kubernetes"),
        ([], 0, "WARN", "no node is desired now: nothing offers GPUs yet"),
        ([node(gpus="7")], 1, "FAIL", "node-0: it offers 7 of 8 GPUs: the others are withheld"),
        ([node(efas="")], 1, "FAIL", "aws-efa-k8s-device-plugin:v0.5.20) has no pod on it yet"),
        ([node(gpus="junk")], 1, "FAIL", "(k8s-device-plugin:v0.20.0) has no pod on it yet"),
    ],
)
def test_missing_nodes_and_resources(nodes: list[Any], desired: int, verdict: str, message: str) -> None:
    finding = node_resources.judge(replace(GROUP, desired=desired), observed(*nodes))
    assert finding.verdict == verdict
    assert message in finding.message


@pytest.mark.parametrize(
    ("plugin", "trouble", "message"),
    [
        (NVIDIA, "", "and reports no GPU: is the driver loaded?"),
        (
            AWS_EFA,
            "efa ended with exit code 0; 5 restarts",
            "launched without EFA",
        ),
        (AWS_EFA, "the image x cannot be pulled", "cannot be pulled"),
    ],
)
def test_the_plugins_pod_names_the_cause(plugin: device_plugins.Plugin, trouble: str, message: str) -> None:
    lacks = node(gpus="" if plugin is NVIDIA else "8", efas="32" if plugin is NVIDIA else "")
    finding = node_resources.judge(
        GROUP, observed(lacks, pods=[pod(plugin, "does not start" if trouble else "is ready", trouble)])
    )
    assert finding.verdict == "FAIL"
    assert message in finding.message


def test_a_kubelet_that_is_not_ready_and_a_taint_are_causes() -> None:
    down = node(gpus="")
    down["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "cni plugin not initialized"}]
    assert "its kubelet is not ready: cni plugin not initialized" in node_resources.judge(GROUP, observed(down)).message
    tainted = node(gpus="", taints=[{"key": "maintenance", "effect": "NoSchedule"}])
    assert (
        "does not tolerate the taint maintenance:NoSchedule" in node_resources.judge(GROUP, observed(tainted)).message
    )
    starting = node(gpus="", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    assert "has no pod on it yet" in node_resources.judge(GROUP, observed(starting)).message


def test_one_cause_of_many_nodes_is_named_once() -> None:
    several = [node(f"node-{number}", gpus="") for number in range(4)]
    finding = node_resources.judge(replace(GROUP, desired=4), observed(*several))
    assert finding.message.count("has no pod") == 1
    assert finding.message.startswith("4 of 4 nodes do not offer 8 GPUs and 32 EFA interfaces: node-0: ")


def test_an_image_that_brings_the_plugin_is_the_place_to_search() -> None:
    bottlerocket = replace(GROUP, ami="BOTTLEROCKET_x86_64_NVIDIA", efas=0)
    seen = Observation({"p5": [node(gpus="")]}, {"nvidia.com/gpu": None}, {})
    assert "which the image BOTTLEROCKET_x86_64_NVIDIA brings" in node_resources.judge(bottlerocket, seen).message


def test_an_unknown_number_of_gpus_is_not_called_checked() -> None:
    finding = node_resources.judge(replace(GROUP, gpus=None), observed(node(gpus="4")))
    assert (finding.verdict, "their number was not checked" in finding.message) == ("WARN", True)
