"""Nodes of a cluster that can be tested now, because enough of their GPUs are free; and why others cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Cluster

Object = dict[str, Any]
# Labels of a shared switch, nearest first. A zone is a data centre, not a rack.
RACKS = (
    "topology.kubernetes.io/rack",
    # EKS: the layer with the highest number, of three or four, is the nearest.
    "topology.k8s.aws/network-node-layer-4",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    # NVIDIA topograph, current and older releases.
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/leaf",
)


@dataclass(frozen=True)
class NodeInventory:
    """`free`: node -> number of free GPUs, for nodes that can be tested. `left_out`: other GPU node -> reason.

    `racks`: node -> rack, for nodes with a rack label. `unsure`: why `free` may be wrong; empty if it is certain.
    """

    free: Mapping[str, int]
    left_out: Mapping[str, str]
    racks: Mapping[str, str]
    unsure: str = ""


def find(
    cluster: Cluster, gpu: str, needed: int, rack_label: str = "", tolerated: Collection[str] = ()
) -> NodeInventory:
    """Find nodes where a pod with `needed` GPUs could start at once; `GpuctlError` if no node has any GPU.

    `tolerated`: keys of taints that the pods tolerate, besides the GPU's.
    """
    all_ = [node for node in cluster.find(cluster.kind("v1", "Node"), {}) if _count(node, gpu)]
    if not all_:
        hint = "is the device plugin running? `kubectl describe node` shows what nodes have"
        raise GpuctlError("find GPU nodes", f"no node of {cluster.server} has {gpu}", hint)
    pods, unsure = _pods(cluster)
    used = in_use(pods, gpu)
    whys = {node["metadata"]["name"]: why_not(node, gpu, needed, used, tolerated) for node in all_}
    free = {name_of(node): _count(node, gpu) - sum(used.get(name_of(node), {}).values()) for node in all_}
    return NodeInventory(
        {name: free[name] for name in sorted(whys) if not whys[name]},
        {name: why for name, why in sorted(whys.items()) if why},
        racks(all_, rack_label),
        unsure,
    )


def only(inventory: NodeInventory, names: Collection[str]) -> NodeInventory:
    """Restrict the inventory to these nodes; a name that is no GPU node is left out with that reason."""
    free = {name: count for name, count in inventory.free.items() if name in names}
    gone = {
        name: "it is not a GPU node of the cluster"
        for name in names
        if name not in {**inventory.free, **inventory.left_out}
    }
    left_out = {name: why for name, why in inventory.left_out.items() if name in names}
    return NodeInventory(free, {**left_out, **gone}, inventory.racks, inventory.unsure)


def _pods(cluster: Cluster) -> tuple[Sequence[Object], str]:
    live = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    try:
        return cluster.find_everywhere(cluster.kind("v1", "Pod"), live), ""
    except Forbidden:
        return (), "whether GPUs are in use is not known: you have no permission to list the pods of all namespaces"


def in_use(pods: Iterable[Object], gpu: str) -> dict[str, dict[str, int]]:
    """Node -> pod ("namespace/name") -> number of its GPUs."""
    by_node: dict[str, dict[str, int]] = {}
    for pod in pods:
        count = requested(pod, gpu)
        if count and pod["spec"].get("nodeName"):
            meta = pod["metadata"]
            by_node.setdefault(pod["spec"]["nodeName"], {})[f"{meta['namespace']}/{meta['name']}"] = count
    return by_node


def requested(pod: Object, gpu: str) -> int:
    """Number of GPUs of a pod: the sum over its containers, or that of an init container if it is higher."""
    spec = pod["spec"]
    main = [_wants(container, gpu) for container in spec.get("containers") or []]
    init = [_wants(container, gpu) for container in spec.get("initContainers") or []]
    return max(sum(main), *init, 0)


def _wants(container: Object, gpu: str) -> int:
    resources = container.get("resources") or {}
    return int({**(resources.get("limits") or {}), **(resources.get("requests") or {})}.get(gpu, 0))


def why_not(
    node: Object, gpu: str, needed: int, used: Mapping[str, Mapping[str, int]], tolerated: Collection[str] = ()
) -> str:
    """Reason why a pod with `needed` GPUs could not run on a node; empty if it could."""
    if node["spec"].get("unschedulable"):
        return "it is cordoned"
    ready = [condition for condition in node["status"].get("conditions") or [] if condition["type"] == "Ready"]
    if ready and ready[0]["status"] != "True":
        return f"it is not ready: {ready[0].get('message') or ready[0].get('reason') or 'no reason given'}"
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in (gpu, *tolerated):
            return f"it is tainted {taint['key']}={taint.get('value', '')}:{taint['effect']}"
    has, holders = _count(node, gpu), used.get(name_of(node), {})
    if has < needed:
        return f"it has {has} of the {needed} GPUs that a pod asks for"
    if has - sum(holders.values()) < needed:
        return f"{sum(holders.values())} of its {has} GPUs are in use by {', '.join(sorted(holders)[:3])}" + ", …" * (
            len(holders) > 3
        )
    return ""


def racks(nodes: Iterable[Object], label: str = "") -> dict[str, str]:
    """Node -> rack, by this label, or by the first usual label that a node has."""
    by_node = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        values = [labels[key] for key in ((label,) if label else RACKS) if labels.get(key)]
        if values:
            by_node[name_of(node)] = str(values[0])
    return by_node


def name_of(node: Object) -> str:
    return str(node["metadata"]["name"])


def _count(node: Object, gpu: str) -> int:
    return int((node["status"].get("allocatable") or {}).get(gpu, 0))
