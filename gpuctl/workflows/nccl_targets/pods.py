"""Pods of a test's own as the target of NCCL tests: they are created for each launch on nodes with free GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named as join_names
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.nccl.launch.output import create_folder
from gpuctl.nccl.runners.kube import mpijob
from gpuctl.nccl.runners.kube import nodes as kube_nodes
from gpuctl.nccl.runners.kube.model import Settings
from gpuctl.nccl.runners.kube.nodes import NodeInventory
from gpuctl.nccl.runners.kube.runner import KubeRunner
from gpuctl.workflows.nccl_targets.model import NodeAccess, Notify, TargetRequest, split_names


def access(request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    """Access to the nodes of the cluster that the kubeconfig's context names."""
    cluster = kube.connect(request.pods.context, request.pods.namespace)
    return in_pods(Place(cluster, settings_of(Settings(""), request)), request, gpus, notify)


def settings_of(base: Settings, request: TargetRequest) -> Settings:
    """Override `base` with the options that are set."""
    options = request.pods
    values: dict[str, Any] = {
        "image": options.image,
        "networks": options.networks,
        "service_account": options.service_account,
        "pull_secret": options.pull_secret,
        "fabric": dict(_resource(text) for text in options.fabric),
        "search_path": request.search_path,
    }
    overrides = {name: value for name, value in values.items() if value}
    return replace(base, **overrides, user=base.user if options.user is None else options.user)


@dataclass(frozen=True)
class Place:
    """Cluster for new pods, and their settings. `allowed`: nodes to choose from if --nodes names none; None for all."""

    cluster: Cluster
    settings: Settings
    allowed: Collection[str] | None = None


def in_pods(place: Place, request: TargetRequest, gpus: int, notify: Notify) -> NodeAccess:
    """Access to the nodes that have at least `gpus` free GPUs; nodes left out are reported."""
    cluster, settings = place.cluster, place.settings
    tolerated = (*settings.fabric, *settings.tolerations)
    inventory = kube_nodes.find(cluster, settings.gpu, gpus, request.pods.rack_label, tolerated=tolerated)
    if place.allowed is not None and not request.nodes:
        inventory = kube_nodes.only(inventory, place.allowed)
    names = _chosen_nodes(request.nodes, inventory, cluster.server, notify)
    settings = replace(settings, mpijob=len(names) > 1 and _by_operator(cluster, request.pods.mpijob, notify))
    runner = KubeRunner(cluster, settings, create_folder(request.save_output))
    return NodeAccess(runner, names, cluster.server, dict(inventory.racks))


def _by_operator(cluster: Cluster, requested: bool | None, notify: Notify) -> bool:
    by_operator, reason = mpijob.chosen(cluster, requested)
    if reason:
        notify(f"several nodes run {reason}")
    return by_operator


def _chosen_nodes(nodes: str, inventory: NodeInventory, server: str, notify: Notify) -> list[str]:
    """Nodes listed in --nodes, in that order, or all that can be tested; nodes left out are reported."""
    if inventory.unsure:
        notify(f"gpuctl: {inventory.unsure}")
    requested = split_names(nodes)
    if len(set(requested)) < len(requested):
        raise InvalidInput(f"run on nodes of {server}", "--nodes names a node twice", "list each one once")
    refused = {name: inventory.left_out.get(name, "no GPU node has this name") for name in requested}
    if wrong := [f"{name}: {why}" for name, why in refused.items() if name not in inventory.free]:
        hint = f"nodes that can be tested: {join_names(list(inventory.free), 32) or 'none'}"
        raise InvalidInput(f"run on nodes of {server}", "; ".join(wrong), hint)
    if not requested:
        for name, why in inventory.left_out.items():
            notify(f"left out: {name}: {why}")
    if not inventory.free:
        why = "; ".join(f"{name}: {why}" for name, why in list(inventory.left_out.items())[:8])
        raise GpuctlError("find nodes to test", why, "wait until their jobs end, or lower --gpus-per-node")
    return requested or list(inventory.free)


def _resource(text: str) -> tuple[str, str]:
    name, _, count = text.partition("=")
    if not name or not count:
        raise InvalidInput("read --fabric", f"{text!r} is not of the form NAME=N", "such as vpc.amazonaws.com/efa=32")
    return name, count
