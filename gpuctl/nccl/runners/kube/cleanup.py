"""Removes all that a launch made, and tells the nodes where a container of it may still run."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.runners.kube import leftovers, mpijob, pod_placement, pod_state
from gpuctl.nccl.runners.kube.model import RUN, Task


@dataclass(frozen=True)
class Removed:
    """`lost`: the nodes whose kubelet did not say that our container there has ended; `left`: what stays, in words."""

    lost: tuple[str, ...] = ()
    left: str = ""


def remove(cluster: Cluster, task: Task) -> Removed:
    """Remove all. That the API did not let us remove something says nothing of any node, so none is lost then."""
    try:
        left = _left(cluster, task)
    except GpuctlError as error:
        return Removed(left=f"not removed: {error.wrong}; {_stays(cluster, task, error)}")
    names = sorted(object_["metadata"]["name"] for object_ in left)
    pods = [object_ for object_ in left if object_["kind"] == "Pod" and not pod_state.has_ended(object_)]
    nodes_left = {pod_placement.place(task, pod) for pod in pods}
    message = f"still there after {leftovers.REMOVAL_S:g} s: {', '.join(names)}" if left else ""
    return Removed(tuple(node for node in task.launch.nodes if node in nodes_left), message)


def _stays(cluster: Cluster, task: Task, error: GpuctlError) -> str:
    """Until when, and who removes it."""
    pods = f"its pods end {task.lasts_s:g} s after their start at the latest, and hold their GPUs until then"
    if not isinstance(error, Forbidden):
        return f"{pods}; after that your next run removes it, or `gpuctl nccl clean`"
    kinds = f"{'mpijobs,' * task.by_operator}pods,services,secrets"
    command = f"kubectl delete -n {cluster.namespace} {kinds} -l {RUN}={task.run}"
    return f"{pods}; it stays until somebody who may removes it: `{command}`"


def _left(cluster: Cluster, task: Task) -> list[Object]:
    """One kind after the other, what makes pods first: they use the others until they are gone."""
    kinds = [kind for kind in leftovers.kinds(cluster) if task.by_operator or kind.kind != mpijob.KIND]
    left: list[Object] = []
    for kind in kinds:
        how = "Foreground" if kind.kind == mpijob.KIND else "Background"
        left += cluster.remove([kind], task.labels, leftovers.REMOVAL_S, how)
    return left
