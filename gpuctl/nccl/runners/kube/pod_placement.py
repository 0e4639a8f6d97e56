"""Which node a pod of a launch is for: how everything else names pods, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuctl.nccl.runners.kube.model import COMPONENT, LAUNCHER, RUN, Task

Object = dict[str, Any]
ANYWHERE = "the launcher"
# The label by which the MPI operator numbers its workers (kubeflow.org/v2beta1).
INDEX = "training.kubeflow.org/replica-index"


def launcher(task: Task) -> str:
    """The launcher's place: the node where it is the only pod, else "the launcher", which may be anywhere."""
    return task.launch.nodes[0] if len(task.launch.nodes) == 1 else ANYWHERE


def workers(task: Task) -> list[str]:
    """The nodes; none for a single one, which needs no workers."""
    return list(task.launch.nodes) if len(task.launch.nodes) > 1 else []


def place(task: Task, pod: Object) -> str:
    """The node that a pod is for, "the launcher", or "worker 3" of the MPI operator while it has no node."""
    meta = pod["metadata"]
    if meta["labels"].get(COMPONENT) == LAUNCHER:
        return launcher(task)
    if task.by_operator:
        return str(pod["spec"].get("nodeName") or f"worker {meta['labels'].get(INDEX, '')}".strip())
    return task.launch.nodes[int(meta["name"].rpartition("-w")[2])]


def of(task: Task, pods: Iterable[Object]) -> dict[str, Object]:
    """A launch's pods among others, by place."""
    return {place(task, pod): pod for pod in pods if pod["metadata"]["labels"].get(RUN) == task.run}


def in_order_of_workers(task: Task, pods: dict[str, Object]) -> tuple[str, ...]:
    """The nodes in the order of the ranks: the operator's workers go where the scheduler puts them."""
    if not task.by_operator:
        return task.launch.nodes
    numbers = {name: str(pod["metadata"]["labels"].get(INDEX, "")) for name, pod in pods.items()}
    known = [name for name in task.launch.nodes if numbers.get(name, "").isdigit()]
    workers_ = tuple(sorted(known, key=lambda name: int(numbers[name])))
    return workers_ if len(workers_) == len(task.launch.nodes) else task.launch.nodes
