"""DaemonSets of device plugins: images, nodes, and plugins that exist already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.eks import device_plugins, read
from gpuctl.eks.device_plugins import AWS_EFA, EFA, NVIDIA, GroupNodes, Plugin

P5 = GroupNodes(
    "p5", "p5.48xlarge", "AL2023_x86_64_NVIDIA", 2, 8, 32, ("nvidia.com/gpu:NoSchedule", "team=a:NoExecute")
)
T4 = GroupNodes("t4", "g4dn.xlarge", "BOTTLEROCKET_x86_64_NVIDIA", 1, 1)
CPU = GroupNodes("cpu", "m7i.xlarge", "AL2023_x86_64_STANDARD", 1, 0)


def listed(name: str, image: str, namespace: str = "kube-system", *command: str, **labels: str) -> dict[str, Any]:
    """A DaemonSet with one container, which registers with kubelet."""
    meta = {"name": name, "namespace": namespace, "labels": {key.replace("_", "/"): one for key, one in labels.items()}}
    mount = {"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"}
    volume = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins/"}}
    container = {"image": image, "command": list(command), "volumeMounts": [mount]}
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": [container], "volumes": [volume]}}}}


def test_only_groups_that_need_a_plugin_and_do_not_bring_it_get_it() -> None:
    groups = (P5, T4, CPU)
    assert device_plugins.targets(NVIDIA, groups) == [P5]
    assert device_plugins.targets(AWS_EFA, groups) == [P5]
    assert (T4.needs, CPU.needs) == ({"nvidia.com/gpu": 1}, {})


def test_nodes_are_selected_by_group_and_their_taints_are_tolerated() -> None:
    spec = device_plugins.daemon_set(AWS_EFA, [P5], "us-east-1")["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "eks.amazonaws.com/nodegroup", "operator": "In", "values": ["p5"]}]}]
    assert {"key": "team", "operator": "Exists", "effect": "NoExecute"} in spec["tolerations"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]


def test_groups_and_tolerations_that_are_served_already_stay() -> None:
    live = device_plugins.daemon_set(AWS_EFA, [P5], "us-east-1")
    renamed = replace(P5, group="p5-b", taints=())
    made = device_plugins.daemon_set(AWS_EFA, [renamed], "us-east-1", live)
    assert device_plugins.selected_groups(made) == {"p5", "p5-b"}
    assert device_plugins.tolerations([P5]) == made["spec"]["template"]["spec"]["tolerations"]


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-west-2", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
        ("eu-central-2", "900612956339.dkr.ecr.eu-central-2.amazonaws.com"),
        ("cn-north-1", "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("us-gov-east-1", "151742754352.dkr.ecr.us-gov-east-1.amazonaws.com"),
        ("xx-future-1", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),  # as EKS's own images do
    ],
)
def test_the_efa_plugin_comes_from_the_registry_of_the_region(region: str, registry: str) -> None:
    spec = device_plugins.daemon_set(AWS_EFA, [P5], region)["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == f"{registry}/eks/aws-efa-k8s-device-plugin:v0.5.20"


@pytest.mark.parametrize("region", ["us-iso-east-1", "eusc-de-east-1", "cn-south-9"])
def test_a_registry_that_is_not_known_is_not_guessed(region: str) -> None:
    with pytest.raises(GpuctlError, match="is not known"):
        device_plugins.daemon_set(AWS_EFA, [P5], region)
    assert device_plugins.daemon_set(NVIDIA, [P5], region)  # it comes from NVIDIA's registry


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ((), True),
        (("nvidia-device-plugin",), True),
        (("bash", "-c", "/bin/entrypoint.sh"), True),
        (("gpu-feature-discovery",), False),
        (("mps-control-daemon", "mount-shm"), False),
        (("/usr/bin/config-manager",), False),
    ],
)
def test_other_programs_of_nvidias_image_are_no_device_plugin(command: tuple[str, ...], is_one: bool) -> None:
    theirs = listed("theirs", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", "gpu-operator", *command)
    assert bool(device_plugins.of_others(NVIDIA, [theirs])) is is_one


def test_a_container_that_does_not_reach_kubelets_folder_is_no_device_plugin() -> None:
    theirs = listed("theirs", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1")
    theirs["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"] = "/etc/kubernetes/node-feature-discovery"
    assert device_plugins.of_others(NVIDIA, [theirs]) == []


@pytest.mark.parametrize(
    ("plugin", "image", "is_one"),
    [
        (NVIDIA, "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", True),
        (NVIDIA, "registry.example.com/mirror/nvidia/k8s-device-plugin@sha256:0", True),
        (NVIDIA, "registry.example.com:5000/k8s-device-plugin:v0.17.1", True),
        (NVIDIA, "registry.example.com/gpu/nvidia-k8s-device-plugin:v0.17.1", True),
        (NVIDIA, "rocm/k8s-device-plugin:1.31", False),
        (NVIDIA, "registry.example.com/rocm/k8s-device-plugin:1.31", False),
        (NVIDIA, "registry.example.com/amd/k8s-device-plugin:1.31", False),
        (NVIDIA, "registry.example.com/aws-efa-k8s-device-plugin:v0.5.4", False),
        (NVIDIA, "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.4", False),
        (AWS_EFA, "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.4", True),
    ],
)
def test_plugins_of_others_are_known_by_their_image(plugin: Plugin, image: str, is_one: bool) -> None:
    assert bool(device_plugins.of_others(plugin, [listed("theirs", image, "gpu-operator")])) is is_one


def test_gpuctls_name_without_its_label_is_of_others() -> None:
    label = {"app.kubernetes.io_managed-by": "gpuctl"}
    made = listed(NVIDIA.name, NVIDIA.image, **label)
    assert device_plugins.is_ours(NVIDIA, made)
    assert device_plugins.of_others(NVIDIA, [made]) == []
    assert device_plugins.of_others(NVIDIA, [listed(NVIDIA.name, "other:1")])


@pytest.mark.parametrize(
    ("gpus", "count"),
    [
        ([{"Name": "H100", "Manufacturer": "NVIDIA", "Count": 8}], 8),
        ([{"Name": "L4", "Manufacturer": "NVIDIA", "Count": 0, "LogicalGpuCount": 1}], 1),
        ([{"Name": "Radeon Pro V520", "Manufacturer": "AMD", "Count": 1}], 0),
        ([{"Name": "L4", "Manufacturer": "NVIDIA"}], None),
        ([], 0),
    ],
)
def test_gpus_of_a_type_count_fractions_and_only_nvidias(gpus: list[dict[str, Any]], count: int | None) -> None:
    answer = {
        "InstanceType": "any",
        "VCpuInfo": {"DefaultVCpus": 4},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "GpuInfo": {"Gpus": gpus},
    }
    assert read.instance_type(answer, frozenset()).gpus == count


def test_only_gpus_need_nvidias_driver() -> None:
    plain = replace(P5, ami="AL2023_x86_64_STANDARD")
    assert (plain.awaited, P5.awaited) == ({EFA: 32}, P5.needs)
    assert replace(P5, ami="BOTTLEROCKET_x86_64", gpus=0).awaited == {EFA: 32}


def test_the_node_of_a_pod_that_does_not_fit_there_is_known() -> None:
    rule = {"key": "metadata.name", "operator": "In", "values": ["node-7"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert device_plugins.node_of({"spec": {"affinity": affinity}}) == "node-7"
    assert device_plugins.node_of({"spec": {"nodeName": "node-1", "affinity": affinity}}) == "node-1"
    assert device_plugins.node_of({"spec": {}}) == ""


def test_an_unknown_number_of_gpus_needs_one() -> None:
    assert GroupNodes("new", "p7.48xlarge", "AL2023_x86_64_NVIDIA", 1, None, 8).needs == {"nvidia.com/gpu": 1, EFA: 8}
