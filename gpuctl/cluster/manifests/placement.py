"""Placement of pods: one per node, on the selected nodes, close to each other."""

from __future__ import annotations

from gpuctl.cluster.environment import Environment, Object

HOSTNAME = "kubernetes.io/hostname"


def where(env: Environment) -> Object:
    """Return the scheduling part of a pod's spec."""
    nodes = env.cluster.nodes
    affinity = {**_on_nodes(nodes.gpu_nodes), **({} if env.single else _beside_others(env))}
    return {
        **({"affinity": affinity} if affinity else {}),
        **({"nodeSelector": dict(nodes.selector)} if nodes.selector else {}),
        "tolerations": [{"key": key, "operator": "Exists"} for key in _tolerated(env)],
    }


def _on_nodes(names: tuple[str, ...]) -> Object:
    """Match nodes by name: their label kubernetes.io/hostname may differ. A matchField accepts one name only."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required} if terms else {}


def _beside_others(env: Environment) -> Object:
    """Require one pod per node; prefer nodes with the same topology label."""
    others = {"labelSelector": {"matchLabels": env.selector}}
    apart = [{**others, "topologyKey": HOSTNAME}]
    affinity: Object = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    key = env.cluster.nodes.topology_key
    if key:
        near = [{"weight": 100, "podAffinityTerm": {**others, "topologyKey": key}}]
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": near}
    return affinity


def _tolerated(env: Environment) -> list[str]:
    """Return the tolerated taints: GPU nodes are often reserved for pods that use their GPUs or adapters."""
    adapters = env.cluster.network.rdma.resources if env.rdma else ()
    return list(dict.fromkeys([env.cluster.gpus.resource, *adapters, *env.cluster.nodes.tolerations]))
