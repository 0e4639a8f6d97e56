"""A real control plane as environments need one: GPU nodes, storage classes, and the kinds that OpenShift adds.

OpenShift's kinds and network attachments are there as CRDs without a schema: they show that objects are made and
removed, and prove nothing of what stands in them. A server before 1.21 has no policy/v1, and no CRD can bring it: an
environment goes without its PodDisruptionBudget there.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cluster.clusterfile import read
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import flow
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.flow import PlanRequest
from gpuctl.cluster.deploy.model import Plan
from gpuctl.cluster.deploy.wait import NotReady
from gpuctl.edges.kube import cluster as kube
from tests.rig.cluster.files import document
from tests.rig.kube import plane as kube_plane
from tests.rig.kube.follower import Follower
from tests.rig.kube.plane import Plane

DEVICES = {"nvidia.com/gpu": "8", "nvidia.com/roce": "1"}
ROOM = {"cpu": "192", "memory": "2Ti", "pods": "110"}
KINDS = (
    ("security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints", False),
    ("route.openshift.io", "v1", "Route", "routes", True),
    ("build.openshift.io", "v1", "BuildConfig", "buildconfigs", True),
    ("image.openshift.io", "v1", "ImageStream", "imagestreams", True),
    ("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions", True),
)
# What an environment is made of, and what is made from that, by where the API has it.
IN_A_NAMESPACE = {
    "/api/v1": ("serviceaccounts", "secrets", "configmaps", "services", "persistentvolumeclaims", "pods"),
    "/apis/apps/v1": ("statefulsets", "controllerrevisions"),
    "/apis/rbac.authorization.k8s.io/v1": ("roles", "rolebindings"),
    "/apis/networking.k8s.io/v1": ("networkpolicies", "ingresses"),
    "/apis/image.openshift.io/v1": ("imagestreams",),
    "/apis/build.openshift.io/v1": ("buildconfigs",),
    "/apis/route.openshift.io/v1": ("routes",),
    "/apis/policy/v1": ("poddisruptionbudgets",),
}
SINCE_1_21 = ("/apis/policy/v1",)
FURNITURE = ("serviceaccounts", "configmaps", "secrets")
# Kubernetes up to 1.23 makes and removes the token of a service account some time after the account.
GONE_LATER = "kubernetes.io/service-account-token"
EVERYWHERE = "/apis/security.openshift.io/v1/securitycontextconstraints"


def for_tests(nodes: int = 8) -> Iterator[Plane]:
    """The body of a fixture for all tests of a file."""
    for started in kube_plane.for_tests():
        prepare(started, nodes)
        with standin_provisioner(started):
            yield started


def prepare(plane: Plane, nodes: int = 8) -> None:
    """Bring in what a GPU cluster has besides a control plane."""
    plane.apply(*(crd(*each) for each in KINDS))
    for number in range(nodes):
        node(plane, f"gpu-{number}", new=number > 1)
    for name, provisioner in {"nfs": "nfs.csi.k8s.io", "rbd": "lab.rbd.csi.ceph.com"}.items():
        meta = {"name": name}
        plane.apply(
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, "provisioner": provisioner}
        )
    groups = {(group, version) for group, version, *_ in KINDS}
    wait_for(lambda: all(_is_served(plane, *group) for group in groups))


def _is_served(plane: Plane, group: str, version: str) -> bool:
    with contextlib.suppress(AssertionError):
        return bool(plane.api("GET", f"/apis/{group}/{version}")["resources"])
    return False


def crd(group: str, version: str, kind: str, plural: str, namespaced: bool) -> dict[str, Any]:
    """A kind that takes anything."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    served = {"name": version, "served": True, "storage": True, "schema": anything}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": names,
            "versions": [served],
        },
    }


def node(plane: Plane, name: str, new: bool = True, devices: Mapping[str, str] = DEVICES) -> None:
    """A node with eight GPUs and an adapter; the stand-in kubelet makes what is bound to it run."""
    labels = {"kubernetes.io/hostname": name}
    ready = [{"type": "Ready", "status": "True", "reason": "StandIn", "message": ""}]
    room = {**ROOM, **devices}
    status = {"capacity": room, "allocatable": room, "conditions": ready}
    if new:
        plane.api("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    plane.api("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "spec": {"taints": []}})
    plane.api("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})


def wait_for(ready: Any, seconds: float = 90, last: Sequence[str] = ()) -> None:
    """Wait until `ready` is true; AssertionError with the end of `last` where it does not become so."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"not within {seconds} s: {list(last[-1:])}"
        time.sleep(0.1)


def standin_provisioner(plane: Plane, folder: Path = Path("/nowhere")) -> Follower:
    """A stand-in for CSI drivers: within its block every claim gets a volume."""
    made: set[str] = set()

    def provide(claim: dict[str, Any]) -> None:
        uid = claim["metadata"]["uid"]
        if claim["status"].get("phase") == "Pending" and uid not in made:
            plane.api("POST", "/api/v1/persistentvolumes", volume(claim, folder))
            made.add(uid)

    return plane.follower("/api/v1/persistentvolumeclaims", provide)


def volume(claim: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A folder of the node."""
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "metadata": {"name": f"pv-{meta['uid']}"},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
            "hostPath": {"path": str(folder / meta["uid"])},
        },
    }


def restart(plane: Plane, away_s: float = 1.0) -> None:
    """The API server dies, and comes back a moment later."""
    server = next(each for each in plane.processes if "kube-apiserver" in str(each.args))
    server.kill()
    server.wait()
    time.sleep(away_s)
    again = subprocess.Popen(
        server.args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    plane.processes[plane.processes.index(server)] = again


@dataclass
class Lab:
    """A namespace of its own, and the cluster file for it."""

    plane: Plane
    folder: Path
    namespace: str
    actor: str = "me"
    said: list[str] = field(default_factory=list)

    def path(self, *changes: Mapping[str, Any]) -> Path:
        """The small cluster file with changes, for this cluster and namespace."""
        here = {"cluster": {"api": f"https://{self.plane.address}:{self.plane.port}", "namespace": self.namespace}}
        path = self.folder / "lab.yaml"
        path.write_text(yaml.safe_dump(document(here, *changes), sort_keys=False))
        return path

    def file(self, *changes: Mapping[str, Any]) -> File:
        return read.load(self.path(*changes))

    def cluster(self, kubeconfig: Path | None = None, patience_s: float = 30) -> kube.Cluster:
        return kube.connect(
            namespace=self.namespace, files=[kubeconfig or self.plane.kubeconfig], patience_s=patience_s
        )

    def plan(self, *changes: Mapping[str, Any], **wish: Any) -> Plan:
        return flow.plan(self.cluster(), self.file(*changes), PlanRequest(actor=self.actor, **wish))

    def deploy(self, *changes: Mapping[str, Any], limit_s: float = 60, take_over: bool = False, **wish: Any) -> Plan:
        """Deploy it to its end; what is told meanwhile stands in `said`."""
        plan = self.plan(*changes, **wish)
        flow.deploy(self.cluster(), replace(plan, take_over=take_over), self.tell, limit_s, Applied())
        return plan

    def tell(self, subject: str, words: str) -> None:
        self.said.append(f"{subject}: {words}")

    def get(self, what: str, name: str = "") -> Any:
        return self.plane.get(what, name, self.namespace)

    def names(self) -> list[str]:
        """Everything in the namespace, and of what belongs to none, with its version: a write would be seen."""
        at = f"namespaces/{self.namespace}"
        groups = {group: names for group, names in IN_A_NAMESPACE.items() if self._has(group)}
        paths = [f"{group}/{at}/{plural}" for group, names in groups.items() for plural in names]
        with ThreadPoolExecutor(4) as pool:  # kubectl keeps itself to five requests a second
            return sorted(each for found in pool.map(self.listed, [*paths, EVERYWHERE]) for each in found)

    def _has(self, group: str) -> bool:
        return group not in SINCE_1_21 or self.plane.version >= (1, 21)

    def listed(self, path: str) -> list[str]:
        """What the API has there."""
        listed = self.plane.api("GET", path)
        kind = listed["kind"].removesuffix("List")
        return [
            f"{kind}/{_identity(item)} {_version(item)}" for item in listed["items"] if item.get("type") != GONE_LATER
        ]


def _identity(item: Mapping[str, Any]) -> str:
    return f"{item['metadata']['name']} {item['metadata']['uid']}"


def _version(item: Mapping[str, Any]) -> str:
    """What changes with every write but those of a controller, which may write the status at any time."""
    meta = item["metadata"]
    if "status" not in item or "generation" not in meta:
        return str(meta["resourceVersion"])
    return json.dumps([meta["generation"], meta.get("labels"), meta.get("annotations")], sort_keys=True)


def _is_furnished(lab: Lab) -> bool:
    """Whether controllers have put into a new namespace what they put into every one, and are done."""
    at = f"/api/v1/namespaces/{lab.namespace}"
    before = [lab.listed(f"{at}/{plural}") for plural in FURNITURE]
    time.sleep(0.1)
    after = [lab.listed(f"{at}/{plural}") for plural in FURNITURE]
    return before == after and bool(after[0]) and bool(after[1])


def namespaces(plane: Plane, folder: Path, wait: bool = True) -> Iterator[Lab]:
    """The body of a fixture: a lab in a namespace of its own; `wait`: until its pods are gone."""
    name = f"t{time.monotonic_ns()}"
    plane.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    lab = Lab(plane, folder, name)
    wait_for(lambda: _is_furnished(lab))
    yield lab
    # What other tests could not do without: the GPUs. The rest ends with the cluster.
    plane.kubectl("delete", "statefulsets,pods", "--all", "-n", name, f"--wait={wait}", "--timeout=30s")


def until_told(lab: Lab, plan: Plan, words: str) -> None:
    """Deploy it, and wait for its pods again and again, a moment each time, until that is what keeps them."""
    found: list[str] = []

    def is_told() -> bool:
        with pytest.raises(NotReady) as told:
            flow.deploy(lab.cluster(), plan, lab.tell, 2, Applied())
        found.append(told.value.wrong)
        return re.search(words, found[-1]) is not None

    wait_for(is_told, 120, found)
