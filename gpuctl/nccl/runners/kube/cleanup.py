"""Remove all objects of a launch, and report the nodes where one of its containers may still run."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.runners.kube import leftovers, mpijob, pod_placement, pod_state
from gpuctl.nccl.runners.kube.model import RUN, Task


@dataclass(frozen=True)
class Removed:
    """`lost`: nodes whose kubelet did not confirm the end of our container; `left`: description of what remains."""

    lost: tuple[str, ...] = ()
    left: str = ""


def remove(cluster: Cluster, task: Task) -> Removed:
    """Remove everything. If the API refuses a removal, no node is lost: that is no information about a node."""
    try:
        left = _left(cluster, task)
    except GpuctlError as error:
        return Removed(left=f"not removed: {error.wrong}; {_stays(cluster, task, error)}")
    names = sorted(object_["metadata"]["name"] for object_ in left)
    pods = [object_ for object_ in left if object_["kind"] == "Pod" and not pod_state.is_finished(object_)]
    nodes_left = {pod_placement.place(task, pod) for pod in pods}
    message = f"not removed after {leftovers.REMOVAL_S:g} s: {', '.join(names)}" if left else ""
    return Removed(tuple(node for node in task.launch.nodes if node in nodes_left), message)


def _stays(cluster: Cluster, task: Task, error: GpuctlError) -> str:
    """Lifetime of objects that remain, and how to remove them."""
    pods = f"its pods end {task.lasts_s:g} s after their start at the latest, and hold their GPUs until then"
    if not isinstance(error, Forbidden):
        return f"{pods}; after that your next run removes it, or `gpuctl nccl clean`"
    kinds = f"{'mpijobs,' * task.by_operator}pods,services,secrets"
    command = f"kubectl delete -n {cluster.namespace} {kinds} -l {RUN}={task.run}"
    return f"{pods}; it remains until somebody with permission removes it: `{command}`"


def _left(cluster: Cluster, task: Task) -> list[Object]:
    """Remove kind by kind: first those that create pods, then the pods, which use the other kinds until they end."""
    kinds = [kind for kind in leftovers.kinds(cluster) if task.by_operator or kind.kind != mpijob.KIND]
    left: list[Object] = []
    for kind in kinds:
        how = "Foreground" if kind.kind == mpijob.KIND else "Background"
        left += cluster.remove([kind], task.labels, leftovers.REMOVAL_S, how)
    return left
