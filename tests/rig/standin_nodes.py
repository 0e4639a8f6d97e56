"""A stand-in for a cluster's nodes and pods as values: it applies the patches that gpuctl sends, and evicts pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cluster import Kind, Request

Object = dict[str, Any]


class StandinCluster:
    """`nodes`: name -> bootID, "" if the node shows none. `evict_errors`: raised by the next evictions, in order.

    `comes_back`: pods return to their node under a new uid.
    """

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self.nodes = {name: _node(name, boot) for name, boot in nodes.items()}
        self.pods: list[Object] = []
        self.evict_errors: list[GpuctlError] = []
        self.broken: dict[str, GpuctlError] = {}  # node -> error of each change
        self.comes_back = False
        self.evicted: list[str] = []

    def kind(self, api_version: str, kind: str) -> Kind:
        """See Cluster."""
        return Kind(api_version, kind, f"{kind.lower()}s", kind == "Pod")

    def path_of(self, kind: Kind, name: str) -> str:
        """See Cluster."""
        return f"/api/v1/{kind.plural}/{name}"

    def find(self, kind: Kind, _labels: Mapping[str, str]) -> list[Object]:
        """See Cluster."""
        assert kind.kind == "Node"
        return list(self.nodes.values())

    def find_everywhere(self, _kind: Kind, fields: str) -> list[Object]:
        """See Cluster."""
        return [pod for pod in self.pods if f"spec.nodeName={pod['spec']['nodeName']}" == fields]

    def ask(self, request: Request) -> Object:
        """See Cluster: patches of nodes."""
        name = request.path.split("/")[4]
        if name in self.broken:
            raise self.broken[name]
        if not request.path.endswith("/status"):
            manager = dict(request.query).get("fieldManager", "python-requests")
            self.patch(name, dict(request.body or {}), manager)
        return self.nodes[name]

    def patch(self, name: str, patch: Object, manager: str) -> None:
        """Change a node as its API server does, which keeps who has set its cordon."""
        live = self.nodes[name] = _merged(self.nodes[name], patch)
        fields: Object = {"f:spec": {"f:unschedulable": {}}}
        rows = [{"manager": manager, "operation": "Update", "fieldsV1": fields}]
        if "unschedulable" in patch.get("spec", {}):
            live["metadata"]["managedFields"] = rows if live["spec"].get("unschedulable") else []

    def evict(self, pod: Object) -> None:
        """See Cluster."""
        if self.evict_errors:
            raise self.evict_errors.pop(0)
        self.evicted.append(pod["metadata"]["name"])
        self.pods.remove(pod)
        if self.comes_back:
            meta = pod["metadata"]
            self.pods.append({**pod, "metadata": {**meta, "uid": f"{meta['uid']}+"}})

    def run(self, name: str, node: str) -> None:
        """Let a pod of a Deployment run on a node."""
        owners = [{"kind": "ReplicaSet", "name": "web", "uid": "rs-1", "controller": True}]
        meta = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "ownerReferences": owners}
        self.pods.append({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}})


def _node(name: str, boot: str) -> Object:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {},
        "status": {"nodeInfo": {"bootID": boot}, "addresses": [{"type": "InternalIP", "address": f"ip-{name}"}]},
    }


def _merged(live: Object, patch: Mapping[str, Any]) -> Object:
    merged = dict(live)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key) or {}, value) if isinstance(value, dict) else value
    return merged
