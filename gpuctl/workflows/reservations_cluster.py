"""Nodes of a Kubernetes cluster as nodes of the reservation service, read once at its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.domain import kube_nodes
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import config
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks.gpu_pod import model
from gpuctl.reservations.agent import PodAgent
from gpuctl.reservations.database import Stored
from gpuctl.reservations.rules.model import Node, Site
from gpuctl.reservations.rules.requests import ALIASES
from gpuctl.reservations.serve import Fleet, type_of
from gpuctl.workflows.reservations_pods import ClusterSite, PodNode, PodsRequest, withdrawn

Object = dict[str, Any]
DOING = "serve reservations of a cluster"
ZONE, INSTANCE, PRODUCT = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "nvidia.com/gpu.product"
PATIENCE_S = 10.0  # with an API that does not answer; people wait for half a minute


def connect(request: PodsRequest) -> Cluster:
    """The cluster; `InvalidInput` for values that Kubernetes would not take, before anything is asked."""
    model.check_options(request.sizes.options(request.image))
    return kube.connect(request.context, request.namespace, request.files, PATIENCE_S)


def kubeconfig() -> Path:
    """The file that kubectl reads now; `InvalidInput` unless it is one."""
    files = config.files()
    if len(files) != 1:
        wrong = f"kubectl reads {len(files)} kubeconfigs"
        raise InvalidInput(DOING, wrong, "name the one for the service with --kubeconfig")
    return files[0].absolute()


def fleet(
    cluster: Cluster, request: PodsRequest, gpu_type: str | None, stored: Stored, notify: Callable[[str], None]
) -> Fleet:
    """Nodes of the cluster that have GPUs. One with reservations that the cluster lacks now stays, and is unknown.

    `notify`: receives what the operator has to know. `InvalidInput` if there is no node, or GPUs cannot be shared.
    """
    nodes = [node for node in cluster.find(cluster.kind("v1", "Node"), request.labels) if kube_nodes.has_gpus(node)]
    if not nodes:
        chosen = f" with {kube.selector(request.labels)}" if request.labels else ""
        raise InvalidInput(DOING, f"the cluster has no node{chosen} with GPUs", "`kubectl get nodes --show-labels`")
    place = _namespace_uid(cluster)
    rows = _rows(nodes, gpu_type, stored, notify)
    names = {row.name for row in rows}
    for name, known in stored.nodes.items():
        if name not in names and len(known.free) < len(known.allocated):
            notify(f"{name}: the cluster does not have this node, and it has reservations; nobody gets its GPUs")
            rows.append(known)
    site = ClusterSite(cluster, stored, request, _rooms(nodes))
    agents: dict[str, PodAgent] = {row.name: PodNode(row.name, len(row.allocated), site) for row in rows}
    # Without the right to see all pods of a node, nobody would know who has its GPUs.
    cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={rows[0].name}")
    no_copies = site.disks.copying(request.sizes.storage_class).impossible
    nodes_of_place = [replace(row, place=place) for row in rows]
    return Fleet(nodes_of_place, agents, site=Site(pods=True, no_copies=no_copies), disks=site.disks)


def _namespace_uid(cluster: Cluster) -> str:
    """The uid of the namespace of the pods: no other namespace has it, of no other cluster."""
    namespace = cluster.get(cluster.kind("v1", "Namespace"), cluster.namespace)
    if namespace is None:
        wrong = f"the cluster has no namespace {cluster.namespace}"
        raise InvalidInput(DOING, wrong, "make it, or name another one with --namespace")
    return str(namespace["metadata"]["uid"])


def _rows(nodes: Sequence[Object], gpu_type: str | None, stored: Stored, notify: Callable[[str], None]) -> list[Node]:
    """Nodes by their objects. One that was read before and offers no GPUs now keeps those it had.

    A new one is left out; `InvalidInput` if none is left.
    """
    rows, wrong = list[Node](), list[InvalidInput]()
    for node in nodes:
        known = stored.nodes.get(node["metadata"]["name"])
        try:
            row = node_of(node, gpu_type)
        except InvalidInput as error:
            if known is None:
                notify(f"{error.wrong}; it is left out: restart the service once that is repaired")
                wrong.append(error)
                continue
            row = known
        rows.append(row)
        if why := withdrawn(node, len(row.allocated)):
            notify(f"{row.name}: {why}; its GPUs are given to nobody until that is repaired")
    if not rows:
        raise wrong[0]
    return rows


def node_of(node: Object, gpu_type: str | None) -> Node:
    """A node by its object; `InvalidInput` if it offers parts of GPUs, or its GPU type is not clear."""
    meta, capacity = node["metadata"], (node.get("status") or {}).get("capacity") or {}
    name, labels = str(meta["name"]), meta.get("labels") or {}
    whole = str(capacity.get(kube_nodes.GPU, "0"))
    if not whole.isdigit() or int(whole) != kube_nodes.gpus(capacity) or int(whole) == 0:
        wrong = f"{name}: it offers parts of GPUs, or none: MIG devices, time slices, or no device plugin"
        raise InvalidInput(DOING, wrong, "reservations share whole GPUs: choose other nodes with --node-label")
    return Node(
        name,
        gpu_type.casefold() if gpu_type else _type(name, labels),
        (None,) * int(whole),
        zone=str(labels.get(ZONE, "")),
        efa=kube_nodes.adapters(capacity),
    )


def _type(name: str, labels: Mapping[str, str]) -> str:
    if PRODUCT in labels:
        return type_of({labels[PRODUCT].replace("-", " ")})
    instance = str(labels.get(INSTANCE, ""))
    if (known := ALIASES.get(instance.partition(".")[0])) is not None:
        return known
    wrong = f"{name}: neither the label {PRODUCT} nor {INSTANCE} names its GPU type"
    raise InvalidInput(DOING, wrong, "name it with --type, such as --type h100")


def _rooms(nodes: Sequence[Object]) -> dict[str, Mapping[str, str]]:
    """Allocatable resources by the names of the nodes."""
    return {str(node["metadata"]["name"]): (node.get("status") or {}).get("allocatable") or {} for node in nodes}
