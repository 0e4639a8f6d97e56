"""Use of nodes as the Kubernetes API shows it: which pods were given GPUs, and not what computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuctl.domain import kube_nodes
from gpuctl.domain.gpu_owners import Kind
from gpuctl.nodes.model import Node, SchedulerUse, User

Object = Mapping[str, Any]
Parents = Mapping[tuple[str, str, str], tuple[str, str] | None]  # (namespace, kind, name) -> (kind, name)
INSTANCE, PRODUCT = "node.kubernetes.io/instance-type", "nvidia.com/gpu.product"
# Labels by which queues and training operators name the person or job behind a pod.
LABELS = (
    "kueue.x-k8s.io/queue-name",
    "training.kubeflow.org/job-name",
    "app.kubernetes.io/created-by",
    "app.kubernetes.io/name",
)


def nodes(objects: Iterable[Object], pods: Iterable[Object], parents: Parents, now: int) -> list[Node]:
    """Nodes with GPUs, or with a label of such a node.

    `pods`: those that are scheduled and have not finished, of all namespaces.
    """
    by_node: dict[str, list[Object]] = {}
    for pod in pods:
        by_node.setdefault(pod["spec"].get("nodeName") or "", []).append(pod)
    made = ((node, _node(node, by_node.get(node["metadata"]["name"], []), parents, now)) for node in objects)
    return [node for shown, node in made if node.total or kube_nodes.has_gpus(shown)]


def completed(node: Node, shown: Node) -> Node:
    """Node that answered itself, with its type and the controllers of its pods as the API has them."""
    pods = {user.details["pod_uid"]: user for user in shown.users}
    users = tuple(_completed(user, pods.get(user.details.get("pod_uid", ""))) for user in node.users)
    return replace(node, type=shown.type or node.type, users=users)


def _completed(user: User, pod: User | None) -> User:
    return user if pod is None else replace(user, who=pod.who, details={**pod.details, **user.details})


def unanswered(shown: Node, why: str) -> Node:
    """Node by the API, which was asked itself in vain."""
    scheduler = shown.scheduler and replace(shown.scheduler, no_answer=why)
    return replace(shown, reached=False, scheduler=scheduler)


def _node(node: Object, pods: Sequence[Object], parents: Parents, now: int) -> Node:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    offered, present = kube_nodes.gpus(status.get("allocatable")), kube_nodes.gpus(status.get("capacity"))
    users = [_user(pod, count, parents) for pod in pods if (count := kube_nodes.gpus_of_pod(pod))]
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    reason = "" if ready and ready[0].get("status") == "True" else kube_nodes.reason(ready[0] if ready else {})
    allocated = sum(user.gpu_count or 0 for user in users)
    return Node(
        node["metadata"]["name"],
        labels.get(INSTANCE) or str(labels.get(PRODUCT, "")).replace("-", " ").removeprefix("NVIDIA "),
        users=tuple(sorted(users, key=lambda user: (-(user.gpu_count or 0), user.who))),
        total=max(offered, present, allocated),
        now=now,
        scheduler=SchedulerUse(allocated, max(0, present - offered), reason),
    )


def _user(pod: Object, count: int, parents: Parents) -> User:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    owners = chain(pod, parents)
    details = {"namespace": meta["namespace"], "pod_uid": meta["uid"], "owners": " > ".join(owners)}
    details |= {name: str(labels[name]) for name in LABELS if labels.get(name)}
    start = (pod.get("status") or {}).get("startTime")
    return User(
        str(Kind.POD),
        f"{meta['namespace']}/{meta['name']}",
        what=owners[0] if owners else "",
        details={name: value for name, value in details.items() if value},
        gpu_count=count,
        started=None if start is None else round(datetime.fromisoformat(start).timestamp()),
    )


def parent_of(item: Object) -> tuple[str, str] | None:
    """Kind and name of the controller of an object, or of its only owner; None without one."""
    owners = item["metadata"].get("ownerReferences") or ()
    controllers = [one for one in owners if one.get("controller")] or (owners if len(owners) == 1 else ())
    return (controllers[0]["kind"], controllers[0]["name"]) if controllers else None


def chain(pod: Object, parents: Parents) -> list[str]:
    """Controllers of a pod, the topmost first: ["Deployment web", "ReplicaSet web-7d9"]."""
    namespace, above = pod["metadata"]["namespace"], parent_of(pod)
    names: list[str] = []
    while above is not None and len(names) < len(parents) + 1:
        names.insert(0, " ".join(above))
        above = parents.get((namespace, *above))
    return names
