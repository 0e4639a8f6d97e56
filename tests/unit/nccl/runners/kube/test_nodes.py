"""Which nodes can be tested, and why the others cannot, from objects as clusters have them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.runners.kube import nodes
from gpuctl.nccl.runners.kube.model import Settings
from gpuctl.workflows.nccl_targets import pods as new_pods
from gpuctl.workflows.nccl_targets.model import PodOptions, TargetRequest

GPU = "nvidia.com/gpu"


def node(name: str = "gpu-0", gpus: int = 8, **more: Any) -> dict[str, Any]:
    labels, spec, ready = more.get("labels", {}), more.get("spec", {}), more.get("ready", "True")
    conditions = [{"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}]
    status = {"allocatable": {GPU: str(gpus)}, "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(name: str, *wants: int, init: int = 0, at: str = "gpu-0") -> dict[str, Any]:
    def container(count: int) -> dict[str, Any]:
        return {"resources": {"limits": {GPU: str(count), "cpu": "4"}}}

    spec = {"nodeName": at, "containers": [container(count) for count in wants]}
    return {
        "metadata": {"namespace": "ml", "name": name},
        "spec": {**spec, "initContainers": [container(init)] if init else []},
    }


def why(found: dict[str, Any], *pods: dict[str, Any], needed: int = 8) -> str:
    return nodes.why_not(found, GPU, needed, nodes.in_use(pods, GPU))


def test_a_node_whose_gpus_others_have_is_left_out_and_they_are_named() -> None:
    assert why(node()) == ""
    assert why(node(), pod("train-1", 4), pod("serve", 1)) == "5 of its 8 GPUs are in use by ml/serve, ml/train-1"
    assert why(node(), pod("train-1", 8, at="gpu-1")) == ""


def test_what_is_left_over_may_be_enough() -> None:
    assert why(node(), pod("serve", 1), needed=4) == ""


def test_a_pod_has_what_its_containers_ask_for_together_or_its_init_container() -> None:
    assert nodes.requested(pod("p", 2, 1), GPU) == 3
    assert nodes.requested(pod("p", 2, 1, init=8), GPU) == 8


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (node(spec={"unschedulable": True}), "it is cordoned"),
        (node(ready="Unknown"), "it is not ready: Kubelet stopped posting node status."),
        (node(gpus=7), "it has 7 of the 8 GPUs that a pod asks for"),
        (
            node(spec={"taints": [{"key": "repair", "value": "yes", "effect": "NoSchedule"}]}),
            "it is tainted repair=yes:NoSchedule",
        ),
        (node(spec={"taints": [{"key": GPU, "effect": "NoSchedule"}]}), ""),
        (node(spec={"taints": [{"key": "spot", "effect": "PreferNoSchedule"}]}), ""),
    ],
)
def test_why_a_node_takes_no_pod_of_ours(found: dict[str, Any], said: str) -> None:
    assert why(found) == said


def test_a_rack_is_what_the_label_says_and_a_zone_is_none() -> None:
    eks = {"topology.k8s.aws/network-node-layer-1": "nn-1", "topology.k8s.aws/network-node-layer-3": "nn-3"}
    found = [
        node("a", labels={"topology.kubernetes.io/rack": "r1"}),
        node("b", labels=eks),
        node("c", labels={"topology.kubernetes.io/zone": "us-east-1a"}),
        node("d", labels={**eks, "topology.k8s.aws/network-node-layer-4": "nn-4"}),
    ]
    assert nodes.racks(found) == {"a": "r1", "b": "nn-3", "d": "nn-4"}
    assert nodes.racks(found, "topology.k8s.aws/network-node-layer-1") == {"b": "nn-1", "d": "nn-1"}


def test_of_the_nodes_that_a_file_names_the_others_are_not_spoken_of() -> None:
    found = nodes.NodeInventory({"gpu-0": 8, "gpu-1": 8}, {"gpu-2": "it is cordoned", "gpu-3": "it is cordoned"}, {})
    chosen = nodes.only(found, ["gpu-1", "gpu-2", "gone"])
    assert dict(chosen.free) == {"gpu-1": 8}
    assert dict(chosen.left_out) == {"gpu-2": "it is cordoned", "gone": "it is not a GPU node of the cluster"}


class Three:
    """A cluster of three nodes that nobody uses."""

    server = "https://lab.example.org:6443"

    def kind(self, _: str, name: str) -> str:
        return name

    def find(self, *_: object) -> list[dict[str, Any]]:
        return [node(name) for name in ("gpu-0", "gpu-1", "gpu-2")]

    def find_everywhere(self, *_: object) -> list[dict[str, Any]]:
        return []


def test_nodes_are_named_with_or_without_blanks_between_them() -> None:
    def chosen(named: str) -> list[str]:
        request = TargetRequest(nodes=named, pods=PodOptions(mpijob=False))
        place = new_pods.Place(Three(), Settings("img"))  # type: ignore[arg-type]
        return new_pods.in_pods(place, request, 1, print).nodes

    assert chosen("gpu-2, gpu-0 ,") == chosen("gpu-2,gpu-0") == ["gpu-2", "gpu-0"]
    with pytest.raises(InvalidInput, match="gpu-7: no GPU node has this name"):
        chosen("gpu-0, gpu-7")
