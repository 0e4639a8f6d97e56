"""Device plugins of `gpuctl eks create` on a real control plane, with stand-ins for the kubelets and the plugins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.domain.findings import Finding
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks import device_plugins
from gpuctl.eks.device_plugins import AWS_EFA, EFA, NVIDIA, GroupNodes
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_plugins
from tests.integration.cluster.deploy import lab
from tests.rig.kube import plane as planes
from tests.rig.kube.plane import Plane
from tests.rig.kube.standin_device_plugins import StandinGpuNodes

P4D = GroupNodes(
    "gpu", "p4d.24xlarge", "AL2023_x86_64_NVIDIA", 2, 8, 4, ("nvidia.com/gpu:NoSchedule", "team=ml:NoExecute")
)
TAINTS = ({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "team", "value": "ml", "effect": "NoExecute"})
NO_WAIT = replace(eks_plugins.OFFERED, limit_s=2)
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"


class Killed(BaseException):
    """The process ends."""


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    yield from planes.for_tests()


@pytest.fixture
def nodes(plane: Plane) -> Iterator[StandinGpuNodes]:
    with StandinGpuNodes(plane, {"nvidia.com/gpu": 8, EFA: 4}) as standin:
        yield standin
        for one in plane.api("GET", "/apis/apps/v1/daemonsets")["items"]:
            meta = one["metadata"]
            plane.api("DELETE", f"/apis/apps/v1/namespaces/{meta['namespace']}/daemonsets/{meta['name']}")
        lab.wait_for(lambda: not plane.api("GET", "/api/v1/pods")["items"])


@pytest.fixture
def cluster(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(eks_plugins, "OFFERED", replace(eks_plugins.OFFERED, limit_s=60))
    return kube.connect("test", "kube-system", [plane.kubeconfig])


def ensure(cluster: Cluster, *groups: GroupNodes, lines: list[str] | None = None) -> dict[str, Finding]:
    waiter = Waiter((lines if lines is not None else []).append, every_s=0.2)
    return {one.subject: one for one in eks_plugins.ensure(cluster, groups, "eu-south-1", waiter)}


def daemon_sets(plane: Plane) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in plane.api("GET", DAEMON_SETS)["items"]}


def test_plugins_are_applied_and_the_nodes_offer_gpus_and_efa_before_it_is_done(
    plane: Plane, cluster: Cluster, nodes: StandinGpuNodes
) -> None:
    nodes.join("gpu", "p4d.24xlarge", "node-0", "node-1", taints=TAINTS)
    nodes.join("system", "m7i.xlarge", "node-2")
    lines = list[str]()
    findings = ensure(cluster, P4D, lines=lines)
    assert {subject: str(one.verdict) for subject, one in findings.items()} == {
        NVIDIA.title: "OK",
        AWS_EFA.title: "OK",
        "gpu": "OK",
    }
    assert findings["gpu"].message == "2 nodes offer 8 GPUs and 4 EFA interfaces each"
    assert lines[0] == (
        "waiting for GPUs of the nodes in Kubernetes (usually 1 to 3 min: images of the device plugins are pulled): "
        "0 of 2 nodes of gpu offer 8 GPUs and 4 EFA interfaces"
    )
    made = daemon_sets(plane)
    assert set(made) == {NVIDIA.name, AWS_EFA.name}
    images = {name: one["spec"]["template"]["spec"]["containers"][0]["image"] for name, one in made.items()}
    assert images[NVIDIA.name].startswith("nvcr.io/nvidia/k8s-device-plugin:v0.20.0@sha256:")
    assert images[AWS_EFA.name].startswith("590381155156.dkr.ecr.eu-south-1.amazonaws.com/eks/")
    placed = [one["spec"]["nodeName"] for one in plane.api("GET", "/api/v1/namespaces/kube-system/pods")["items"]]
    assert sorted(placed) == ["node-0", "node-0", "node-1", "node-1"]  # none on the node without GPUs

    again = ensure(cluster, P4D)
    assert again["gpu"].verdict == "OK"
    versions = {name: one["metadata"]["generation"] for name, one in daemon_sets(plane).items()}
    assert versions == {NVIDIA.name: 1, AWS_EFA.name: 1}  # nothing was changed


def test_killed_after_each_change_and_resumed(
    plane: Plane, cluster: Cluster, nodes: StandinGpuNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.join("gpu", "p4d.24xlarge", "node-0", "node-1", taints=TAINTS)
    applied, plain = list[str](), Cluster.apply

    def apply(self: Cluster, desired: Any, **options: Any) -> Any:
        answer = plain(self, desired, **options)
        if desired["metadata"]["name"] not in applied:
            applied.append(desired["metadata"]["name"])
            raise Killed
        return answer

    monkeypatch.setattr(Cluster, "apply", apply)
    for _ in range(2):
        with pytest.raises(Killed):
            ensure(cluster, P4D)
    assert ensure(cluster, P4D)["gpu"].verdict == "OK"
    assert {one["metadata"]["generation"] for one in daemon_sets(plane).values()} == {1}


def test_a_plugin_that_crashes_for_want_of_a_driver_is_named_while_it_waits_and_at_the_limit(
    cluster: Cluster, nodes: StandinGpuNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eks_plugins, "OFFERED", NO_WAIT)
    nodes.broken.add("nvidia-device-plugin")
    nodes.join("gpu", "p4d.24xlarge", "node-0", taints=TAINTS)
    lines = list[str]()
    finding = ensure(cluster, replace(P4D, desired=1), lines=lines)["gpu"]
    assert finding.verdict == "FAIL"
    assert finding.message.startswith(
        "1 of 1 node does not offer 8 GPUs and 4 EFA interfaces: node-0: Pod kube-system/"
    )
    assert "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND" in finding.message
    assert any("node-0: Pod kube-system/gpuctl-nvidia-device-plugin-" in line for line in lines)

    image = replace(P4D, desired=1, ami="AL2023_x86_64_STANDARD")
    without = ensure(cluster, image)["gpu"]
    assert "the image AL2023_x86_64_STANDARD has no driver" in without.message
    assert "make a group of another name with an NVIDIA image" in without.hint


def test_a_plugin_of_others_is_left_alone_and_its_taint_is_the_cause_and_one_for_other_types_does_not_keep_ours_away(
    plane: Plane, cluster: Cluster, nodes: StandinGpuNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eks_plugins, "OFFERED", NO_WAIT)
    nodes.join("gpu", "p4d.24xlarge", "node-0", taints=TAINTS)
    theirs = device_plugins.daemon_set(NVIDIA, [replace(P4D, taints=())], "us-east-1")
    theirs["metadata"] = {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"}
    old = device_plugins.daemon_set(AWS_EFA, [replace(P4D, taints=("team=ml:NoExecute",))], "us-east-1")
    old["spec"]["template"]["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": "p3dn.24xlarge"}
    old["metadata"] = {"name": "aws-efa-k8s-device-plugin-daemonset", "namespace": "default"}
    for one in (theirs, old):
        plane.api("POST", f"/apis/apps/v1/namespaces/{one['metadata']['namespace']}/daemonsets", one)
    findings = ensure(cluster, replace(P4D, desired=1))
    assert findings[NVIDIA.title].message == (
        "DaemonSet kube-system/nvidia-device-plugin-daemonset (k8s-device-plugin:v0.20.0) exists already, "
        "and is left alone"
    )
    assert set(daemon_sets(plane)) == {"nvidia-device-plugin-daemonset", AWS_EFA.name}
    assert "does not tolerate the taint team:NoExecute" in findings["gpu"].message
    assert findings[AWS_EFA.title].message.endswith("is applied")
