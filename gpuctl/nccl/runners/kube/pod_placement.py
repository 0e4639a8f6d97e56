"""Map the pods of a launch to nodes, whether gpuctl or the MPI operator created them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuctl.nccl.runners.kube.model import COMPONENT, LAUNCHER, RUN, Task

Object = dict[str, Any]
ANYWHERE = "the launcher"
# Label with the number of a worker of the MPI operator (kubeflow.org/v2beta1).
INDEX = "training.kubeflow.org/replica-index"


def launcher(task: Task) -> str:
    """Place of the launcher: the node if it is the only pod, else "the launcher", which may run anywhere."""
    return task.launch.nodes[0] if len(task.launch.nodes) == 1 else ANYWHERE


def workers(task: Task) -> list[str]:
    """Nodes with workers; none for a single node, which needs no worker."""
    return list(task.launch.nodes) if len(task.launch.nodes) > 1 else []


def place(task: Task, pod: Object) -> str:
    """Node of a pod, "the launcher", or "worker 3" for a pod of the MPI operator without a node."""
    meta = pod["metadata"]
    if meta["labels"].get(COMPONENT) == LAUNCHER:
        return launcher(task)
    if task.by_operator:
        return str(pod["spec"].get("nodeName") or f"worker {meta['labels'].get(INDEX, '')}".strip())
    return task.launch.nodes[int(meta["name"].rpartition("-w")[2])]


def pods_of_launch(task: Task, pods: Iterable[Object]) -> dict[str, Object]:
    """Select the pods of a launch, by place."""
    return {place(task, pod): pod for pod in pods if pod["metadata"]["labels"].get(RUN) == task.run}


def in_order_of_workers(task: Task, pods: dict[str, Object]) -> tuple[str, ...]:
    """Nodes in the order of the ranks: workers of the operator run where the scheduler places them."""
    if not task.by_operator:
        return task.launch.nodes
    numbers = {name: str(pod["metadata"]["labels"].get(INDEX, "")) for name, pod in pods.items()}
    known = [name for name in task.launch.nodes if numbers.get(name, "").isdigit()]
    workers_ = tuple(sorted(known, key=lambda name: int(numbers[name])))
    return workers_ if len(workers_) == len(task.launch.nodes) else task.launch.nodes
