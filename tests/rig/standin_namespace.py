"""A namespace of a Kubernetes API in memory, for tests of what is asked of it and in which order."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Conflict, NotFound
from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cluster import Cluster, Kind, Object, Request
from gpuctl.edges.kube.library import Configuration

KINDS = {
    "Pod": "pods",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "StorageClass": "storageclasses",
    "Event": "events",
    "Namespace": "namespaces",
    "Service": "services",
    "Node": "nodes",
    "DaemonSet": "daemonsets",
    "Ingress": "ingresses",
    "Gateway": "gateways",
    "VolumeSnapshot": "volumesnapshots",
    "VolumeSnapshotClass": "volumesnapshotclasses",
}
OF_THE_CLUSTER = ("StorageClass", "Namespace", "Node", "VolumeSnapshotClass")


class StandinNamespace(Cluster):
    """Stand-in for a namespace of a Kubernetes API: keeps objects and the requests that change them, runs nothing.

    `refuse`: the error for a change, if it is refused.
    """

    def __init__(self, refuse: Callable[[Request], GpuctlError | None] = lambda _: None) -> None:
        super().__init__(Client(Configuration()), "team", patience_s=0)
        self.items: dict[str, Object] = {}
        self.writes: list[tuple[str, str]] = []
        self.refuse = refuse
        self._versions = itertools.count(1)

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, KINDS[kind], namespaced=kind not in OF_THE_CLUSTER)

    def once(self, request: Request, silent_s: float = 0) -> Object:
        path = urlsplit(request.path).path
        if request.method == "GET":
            if path in self.items:
                return copy.deepcopy(self.items[path])
            if path.rsplit("/", 1)[-1] in KINDS.values():
                labels = dict(request.query).get("labelSelector", "")
                chosen = dict(one.split("=") for one in labels.split(",") if one).items()
                everywhere = "/namespaces/" not in path and f"/{path.rsplit('/', 1)[-1]}/"
                named = [
                    item
                    for name, item in self.items.items()
                    if name.startswith(f"{path}/") or (everywhere and everywhere in name)
                ]
                listed = [item for item in named if chosen <= (item["metadata"].get("labels") or {}).items()]
                return {"items": copy.deepcopy(listed), "metadata": {"resourceVersion": "1"}}
            raise NotFound(request.doing, "not found")
        if error := self.refuse(request):
            raise error
        if ("dryRun", "All") in request.query:
            return dict(request.body or {})
        self.writes.append((request.method, path.split("/team/")[-1]))
        return self._change(request, path)

    def _change(self, request: Request, path: str) -> Object:
        body = copy.deepcopy(dict(request.body or {}))
        if request.method == "DELETE":
            return self.items.pop(path)
        if request.method == "POST":
            path += f"/{body['metadata']['name']}"
            if path in self.items:
                raise Conflict(request.doing, "it already exists")
        before = self.items.get(path, {"metadata": {"uid": f"uid-{next(self._versions)}"}})
        version = body["metadata"].get("resourceVersion")
        if version not in (None, before["metadata"].get("resourceVersion")):
            raise Conflict(request.doing, "it has been modified")
        self.items[path] = merged(before, body)
        self.items[path]["metadata"]["resourceVersion"] = str(next(self._versions))
        fields: Object = {"f:spec": {}} if "spec" in body else {}
        written = {"manager": "gpuctl", "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "fieldsV1": fields}
        self.items[path]["metadata"]["managedFields"] = [written]
        return copy.deepcopy(self.items[path])

    def add(self, item: Object, **meta: Any) -> Object:
        """Put an object into the cluster as somebody else would."""
        made = merged(item, {"metadata": {"uid": f"uid-{next(self._versions)}", "resourceVersion": "0", **meta}})
        self.items[self.path_of(self.kind_of(item), item["metadata"]["name"])] = made
        return made

    def name(self, kind: str, name: str) -> str:
        return self.path_of(self.kind("v1", kind), name)


def merged(before: Object, change: Object) -> Object:
    result = dict(before)
    for name, value in change.items():
        result[name] = merged(result.get(name) or {}, value) if isinstance(value, dict) else value
    return result
