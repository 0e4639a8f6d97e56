"""Every kind of environment that a cluster file can stand for, and ways to look into its objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from gpuctl.cluster.clusterfile.read import load
from gpuctl.cluster.environment import Environment, EnvironmentRequest, Object, environment
from tests.rig.cluster.files import EKS, ON_OPENSHIFT, OPENSHIFT, ROCE, write

RDMA = {"network": {"rdma": {**ROCE, "devices": ["mlx5_0"], "attachments": ["net-a"], "dmabuf": False}}}
NODES = {
    "nodes": {"gpu_nodes": ["a", "b", "c"], "selector": {"rack": "r1"}, "topology_key": "rack", "tolerations": ["x"]}
}
OWN_VOLUMES = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "rbd", "folders": {"/data": "datasets/a"}}}
INGRESS = {"domain": "ml.org", "ingress_class": "nginx", "tls_secret": "tls", "from_namespace": "ingress-nginx"}
LOAD_BALANCER = {"domain": "ml.org", "annotations": {"alb.io/arn": "x"}, "from_addresses": ["10.0.0.0/16"]}
BUILD = {"image": {"name": None, "pull_secret": "pull", "build": {"dockerfile": "FROM scratch\nRUN true\n"}}}
GIT = {"image": {"name": None, "build": {"git": "https://example.org/a.git", "ref": "main", "folder": "image"}}}
CASES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "small": (),
    "rdma": (RDMA, NODES, {"ports": {"expose": ["vscode", "jupyter"], "ingress": INGRESS}}),
    "own-volumes": (OWN_VOLUMES, {"security": {"service_account": "theirs", "run_as_user": 2000}}),
    "load-balancer": ({"cluster": {"flavour": "eks"}, "ports": {"expose": ["jupyter"], "ingress": LOAD_BALANCER}},),
    "rdma-own-volumes": (RDMA, OWN_VOLUMES),
    "root": (RDMA, {"security": {"ipc_lock": True, "rdma_as_root": True}}),
    "openshift": (ON_OPENSHIFT, RDMA, BUILD, {"ports": {"expose": ["vscode"]}}),
    "openshift-root": (
        ON_OPENSHIFT,
        RDMA,
        GIT,
        {"security": {"ipc_lock": True, "sys_resource": True, "rdma_as_root": True}},
    ),
    "openshift-folder": (ON_OPENSHIFT, {"image": {"name": None, "build": {}}}),
    "openshift-privileged": (ON_OPENSHIFT, RDMA, {"security": {"requires_privileged_scc": True}}),
    "openshift-host-network": (ON_OPENSHIFT, {"network": {"rdma": {**ROCE, "host_network": True}}}),
}


def environments(folder: Path) -> Iterator[tuple[str, Environment]]:
    """Each case in each mode that it has, as many pods and as one."""
    files = {"h100": OPENSHIFT, "p5": EKS}
    for name, changes in CASES.items():
        (folder / name).mkdir()
        files[name] = write(folder / name, *changes)
    for (name, path), mode, single in product(files.items(), ("rdma", "tcp"), (False, True)):
        cluster = load(path)
        if mode == "tcp" or cluster.network.rdma.enabled:
            shown = f"{name} {mode}{' single' * single}"
            yield shown, environment(cluster, EnvironmentRequest("rdma" if mode == "rdma" else "tcp", single=single))


def pod_specs(objects: list[Object]) -> list[Object]:
    """Those of pods and of templates for pods."""
    found = [each["spec"] for each in objects if each["kind"] == "Pod"]
    return [*found, *(each["spec"]["template"]["spec"] for each in objects if each["kind"] == "StatefulSet")]


def containers(spec: Object) -> list[Object]:
    return [*spec["initContainers"], *spec["containers"]]


def named(objects: list[Object]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def one(objects: list[Object], kind: str, ending: str = "") -> Object:
    """The only object of a kind whose name ends so."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(ending)]
    return found
