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


def node(name: str = "node-0", gpus: str = "8", efas: str = "32", present: str = "", **spec: Any) -> dict[str, Any]:
    """`present`: GPUs in capacity, by default those in allocatable."""
    offers = {key: one for key, one in (("nvidia.com/gpu", gpus), (EFA, efas)) if one}
    capacity = {**offers, **({"nvidia.com/gpu": present} if present else {})}
    status = {"allocatable": offers, "capacity": capacity, "conditions": READY}
    return {"metadata": {"name": name, "labels": LABELS}, "spec": spec, "status": status}


def made(plugin: device_plugins.Plugin) -> dict[str, Any]:
    item = device_plugins.daemon_set(plugin, [GROUP], "us-east-1")
    item["metadata"]["uid"] = plugin.name
    return item


def pod(plugin: device_plugins.Plugin, summary: str, trouble: str = "") -> PluginPod:
    meta = {"name": "plugin-x", "namespace": "kube-system", "ownerReferences": [{"uid": plugin.name}]}
    return PluginPod({"metadata": meta}, summary, trouble, ready=not trouble)


def observed(*nodes: dict[str, Any], pods: Any = ()) -> Observation:
    return Observation({"p5": nodes}, {one.resource: [made(one)] for one in (NVIDIA, AWS_EFA)}, {"node-0": list(pods)})


def test_a_group_whose_nodes_offer_all_is_ok() -> None:
    finding = node_resources.judge(GROUP, observed(node()))
    assert (finding.verdict, finding.message) == ("OK", "1 node offers 8 GPUs and 32 EFA interfaces")


@pytest.mark.parametrize(
    ("nodes", "desired", "verdict", "message"),
    [
        ([node()], 2, "FAIL", "1 of 2 desired nodes joined Kubernetes"),
        ([], 0, "WARN", "no node is desired now: nothing offers GPUs yet"),
        ([node(gpus="7")], 1, "FAIL", "node-0: it offers 7 of 8 GPUs: the others are withheld"),
        ([node(gpus="7", present="8")], 1, "FAIL", "node-0: it offers 7 of 8 GPUs: the others are withheld"),
        ([node(gpus="70", present="80")], 1, "FAIL", "it offers 70 of 80 slices of GPUs: the others are withheld"),
        ([node(gpus="80")], 1, "WARN", "node-0: GPUs are offered as slices"),
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


@pytest.mark.parametrize(
    "key",
    [
        "ebs.csi.aws.com/agent-not-ready",
        "node.cilium.io/agent-not-ready",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "karpenter.sh/unregistered",
    ],
)
def test_a_taint_of_a_node_that_starts_passes_and_one_that_stays_is_the_cause_before_it(key: str) -> None:
    group, taint = replace(GROUP, efas=0), {"key": key, "effect": "NoExecute"}
    tainted = node(gpus="", taints=[taint])
    [cause] = node_resources.causes(group, [tainted], observed(tainted))
    assert cause.passes
    assert key in cause.text
    stays = node(gpus="", taints=[taint, {"key": "maintenance", "effect": "NoSchedule"}])
    [cause] = node_resources.causes(group, [stays], observed(stays))
    assert (cause.passes, "maintenance" in cause.text) == (False, True)


def test_the_hint_is_what_can_be_done_about_a_plugin_of_ours_or_of_others() -> None:
    tainted = node(gpus="", taints=[{"key": "maintenance", "effect": "NoSchedule"}])
    elsewhere = node(gpus="")
    elsewhere["metadata"] = {"name": "node-0", "labels": {}}
    theirs = made(NVIDIA)
    theirs["metadata"] |= {"namespace": "gpu-operator"}
    group = replace(GROUP, efas=0)

    def hint(lacks: dict[str, Any], daemon_set: dict[str, Any]) -> str:
        return node_resources.judge(group, Observation({"p5": [lacks]}, {"nvidia.com/gpu": [daemon_set]}, {})).hint

    assert "`taints` of the group in the file" in hint(tainted, made(NVIDIA))
    assert hint(elsewhere, made(NVIDIA)) == "run `gpuctl eks resume`"
    assert "have its owner tolerate the taint" in hint(tainted, theirs)
    assert "have its owner select these nodes" in hint(elsewhere, theirs)


def test_a_dead_node_and_one_that_is_removed_offer_nothing_although_the_api_still_has_their_gpus() -> None:
    dead, removed = node(), node("node-1")
    dead["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}]
    removed["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    finding = node_resources.judge(replace(GROUP, desired=2), observed(dead, removed))
    assert finding.verdict == "FAIL"
    assert "node-0: its kubelet is not ready: Kubelet stopped posting" in finding.message
    assert "node-1: it is being removed from Kubernetes" in finding.message
    assert node_resources.progress([GROUP], {"p5": [dead]}) == ("0 of 1 node of p5 offer 8 GPUs and 32 EFA interfaces")


def test_slices_of_mig_are_not_called_gpus() -> None:
    sliced = node(gpus="")
    sliced["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "56"
    finding = node_resources.judge(GROUP, observed(sliced))
    assert (finding.verdict, "their number was not checked" in finding.message) == ("WARN", True)


def test_all_gpus_withheld_by_a_plugin_that_runs_are_no_missing_driver() -> None:
    down = node(gpus="0", present="8")
    ready = observed(down, pods=[pod(NVIDIA, "is ready")])
    assert "it offers 0 of 8 GPUs: the others are withheld" in node_resources.judge(GROUP, ready).message
    crashed = observed(down, pods=[pod(NVIDIA, "does not start", "exit code 1")])
    assert "exit code 1" in node_resources.judge(GROUP, crashed).message


def test_the_daemon_set_that_selects_the_node_is_the_one_to_search() -> None:
    others = device_plugins.daemon_set(NVIDIA, [replace(GROUP, group="other")], "us-east-1")
    others["metadata"] |= {"uid": "x", "name": "elsewhere"}
    seen = Observation({"p5": [node(gpus="")]}, {"nvidia.com/gpu": [others, made(NVIDIA)]}, {})
    assert "kube-system/gpuctl-nvidia-device-plugin" in node_resources.judge(replace(GROUP, efas=0), seen).message


def test_one_cause_of_many_nodes_is_named_once() -> None:
    several = [node(f"node-{number}", gpus="") for number in range(4)]
    finding = node_resources.judge(replace(GROUP, desired=4), observed(*several))
    assert finding.message.count("has no pod") == 1
    assert finding.message.startswith("4 of 4 nodes do not offer 8 GPUs and 32 EFA interfaces: node-0: ")


def test_an_image_that_brings_the_plugin_is_the_place_to_search() -> None:
    bottlerocket = replace(GROUP, ami="BOTTLEROCKET_x86_64_NVIDIA", efas=0)
    seen = Observation({"p5": [node(gpus="")]}, {"nvidia.com/gpu": []}, {})
    assert "which the image BOTTLEROCKET_x86_64_NVIDIA brings" in node_resources.judge(bottlerocket, seen).message


def test_an_unknown_number_of_gpus_is_not_called_checked() -> None:
    finding = node_resources.judge(replace(GROUP, gpus=None), observed(node(gpus="4")))
    assert (finding.verdict, "their number was not checked" in finding.message) == ("WARN", True)
