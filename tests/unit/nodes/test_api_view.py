"""Use of nodes by the Kubernetes API alone: who has GPUs, and that nothing is called idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuctl.domain import kube_nodes
from gpuctl.domain.findings import Verdict
from gpuctl.nodes import api_view, summary
from gpuctl.nodes.judge import judge
from gpuctl.nodes.model import Node, State

NOW = 1_790_100_000
PARENTS: api_view.Parents = {
    ("lab", "ReplicaSet", "web-7d9"): ("Deployment", "web"),
    ("lab", "Job", "night-1"): ("CronJob", "night"),
}


def node(
    name: str = "gpu-0", labels: Mapping[str, str] | None = None, *, allocatable: int = 8, ready: str = "True"
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}]
    status: dict[str, Any] = {
        "capacity": {"nvidia.com/gpu": "8", "cpu": "192"},
        "allocatable": {"nvidia.com/gpu": str(allocatable), "cpu": "191"},
        "conditions": conditions,
    }
    return {"metadata": {"name": name, "labels": dict(labels or {})}, "status": status}


def container(count: int, resource: str = "nvidia.com/gpu", **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {resource: str(count)}}, **more}


def pod(name: str, *containers: dict[str, Any], owner: tuple[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    meta: dict[str, Any] = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "ownerReferences": owners}
    meta["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    made = {"nodeName": "gpu-0", "containers": list(containers), **spec}
    return {"metadata": meta, "spec": made, "status": {"startTime": "2026-09-22T18:40:00Z"}}


def only(*pods: dict[str, Any], **more: Any) -> Node:
    [one] = api_view.nodes([node(**more)], pods, PARENTS, NOW)
    return one


def test_pods_with_gpus_have_their_controllers_and_start() -> None:
    one = only(
        pod("web-7d9-x", container(2), owner=("ReplicaSet", "web-7d9")),
        pod("night-1-y", container(1), owner=("Job", "night-1")),
        pod("train-0", container(1), owner=("StatefulSet", "train")),
        pod("bare", container(1)),
        pod("cpu-only", {"resources": {"limits": {"cpu": "4"}}}),
    )
    rows = [(user.who, user.what, user.gpu_count, user.details.get("owners")) for user in one.users]
    assert rows == [
        ("lab/web-7d9-x", "Deployment web", 2, "Deployment web > ReplicaSet web-7d9"),
        ("lab/bare", "", 1, None),
        ("lab/night-1-y", "CronJob night", 1, "CronJob night > Job night-1"),
        ("lab/train-0", "StatefulSet train", 1, "StatefulSet train"),
    ]
    assert one.users[0].since == 1_790_102_400
    assert one.users[0].details["kueue.x-k8s.io/queue-name"] == "research"


def test_what_no_pod_has_is_unknown_and_never_idle() -> None:
    one = only(pod("a", container(5)))
    assert {state: one.count(state) for state in State} == {
        State.USED: 0,
        State.RESERVED: 5,
        State.MEMORY_IN_USE: 0,
        State.IDLE: 0,
        State.UNKNOWN: 3,
    }
    [finding] = judge(one)
    assert (finding.check, finding.verdict) == ("use", Verdict.UNKNOWN)
    assert "no process" in finding.message


def test_an_only_owner_counts_as_the_controller() -> None:
    """`kubectl create job --from=cronjob/x` of old versions makes one."""
    made = pod("a", container(1), owner=("Job", "night-1"))
    made["metadata"]["ownerReferences"][0].pop("controller")
    assert only(made).users[0].what == "CronJob night"
    made["metadata"]["ownerReferences"].append({"kind": "Node", "name": "gpu-0"})
    assert only(made).users[0].what == ""


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (pod("a", container(1), container(2)), 3),
        (pod("a", container(1), initContainers=[container(4)]), 4),
        (pod("a", container(1), initContainers=[container(1, restartPolicy="Always")]), 2),
        (pod("a", container(2, "nvidia.com/mig-1g.10gb"), container(1, "nvidia.com/gpu.shared")), 3),
        (pod("a", {"resources": {"limits": {"nvidia.com/gpumem": "5"}}}), 0),
        (pod("a", {}), 0),
    ],
)
def test_gpus_of_a_pod(made: dict[str, Any], count: int) -> None:
    assert kube_nodes.gpus_of_pod(made) == count


def test_withdrawn_gpus_and_a_kubelet_that_is_gone_are_findings() -> None:
    found = {one.check: one.verdict for one in judge(only(allocatable=6, ready="Unknown"))}
    assert found == {"use": Verdict.UNKNOWN, "gpus": Verdict.FAIL, "reachable": Verdict.UNKNOWN}


def test_a_node_whose_device_plugin_offers_none_of_its_gpus_is_shown_as_a_fault() -> None:
    lost = {"metadata": {"name": "n", "labels": {"nvidia.com/gpu.present": "true"}}, "status": node()["status"]}
    lost["status"] = {**lost["status"], "capacity": {"cpu": "192"}, "allocatable": {"cpu": "190"}}
    [one] = api_view.nodes([lost], [], {}, NOW)
    assert [(f.check, f.verdict) for f in judge(one)] == [("gpus", Verdict.FAIL)]


def test_nodes_without_gpus_are_left_out_and_types_are_labels() -> None:
    bare = {"metadata": {"name": "cpu-0"}, "status": {"capacity": {"cpu": "4"}}}
    typed = node("gpu-1", {"node.kubernetes.io/instance-type": "p5.48xlarge"})
    product = node("gpu-2", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    made = api_view.nodes([bare, typed, product], [], {}, NOW)
    assert [(one.name, one.type) for one in made] == [("gpu-1", "p5.48xlarge"), ("gpu-2", "H100 80GB HBM3")]
    assert str(summary.groups(made)[0]) == "1 \u00d7 H100 80GB HBM3: 0 of 8 GPUs in use; 8 unknown"
