"""Use of the GPU nodes of a Kubernetes cluster, from its API, and on request from the nodes themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.domain import kube_nodes
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nodes import api_view
from gpuctl.nodes.model import Fleet, Node
from gpuctl.workflows import nodes, nodes_kube_probe
from gpuctl.workflows.nodes_kube_probe import ProbeRequest

AT_ONCE = 8
LIVE_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
# Kinds that a controller of another kind makes.
MADE = {"ReplicaSet": "apps/v1", "Job": "batch/v1"}


def ask(context: str, probe: ProbeRequest | None, notify: Callable[[str], None]) -> list[Node]:
    """GPU nodes and the pods that have their GPUs; `Forbidden` without the right to list both in all namespaces.

    `probe`: ask the nodes, too; those that cannot be asked are shown as the API has them, with the reason.
    """
    cluster = kube.connect(context, probe.namespace if probe else "")
    shown = _by_api(cluster)
    if probe is None or not shown:
        return shown
    if why := nodes_kube_probe.refused(cluster):
        notify(f"{why}: the nodes are shown by the API alone")
        return shown
    names = [node.name for node in shown]
    answers = nodes_kube_probe.ask(cluster, names, probe, nodes.REQUEST, nodes.redacted)
    if left := nodes_kube_probe.leftovers(answers.left, cluster.namespace):
        notify(left)
    facts = {result.host: result.answer["use"] for result in answers.results if result.answer is not None}
    lost = {result.host: result.wrong for result in answers.results}
    fleet = Fleet(facts, taken=round(time.time()))
    asked = {node.name: node for node in nodes.use([fleet], recorded=False, notify=notify)}
    return [
        api_view.completed(asked[node.name], node)
        if node.name in asked
        else api_view.unanswered(node, lost.get(node.name, "no reason is known"))
        for node in shown
    ]


def _by_api(cluster: Cluster) -> list[Node]:
    objects = cluster.find(cluster.kind("v1", "Node"), {})
    pods = [pod for pod in cluster.find_everywhere(cluster.kind("v1", "Pod"), LIVE_PODS) if kube_nodes.gpus_of_pod(pod)]
    return api_view.nodes(objects, pods, _parents(cluster, pods), round(time.time()))


def _parents(cluster: Cluster, pods: Iterable[Object]) -> api_view.Parents:
    """Controllers of the pods' controllers, as far as they may be read."""
    owners = {(pod["metadata"]["namespace"], *owner) for pod in pods if (owner := api_view.parent_of(pod))}
    made = sorted(owner for owner in owners if owner[1] in MADE)
    for kind in {kind for _, kind, _ in made}:
        cluster.serves(MADE[kind], kind)  # once, not in each thread
    with AbandonablePool(AT_ONCE) as pool:
        return dict(zip(made, pool.map(lambda owner: _parent(cluster, *owner), made), strict=True))


def _parent(cluster: Cluster, namespace: str, kind: str, name: str) -> tuple[str, str] | None:
    at = Cluster(cluster.client, namespace, cluster.patience_s)
    try:
        item = at.get(cluster.kind(MADE[kind], kind), name)
    except (Forbidden, NotFound):
        return None
    return None if item is None else api_view.parent_of(item)
