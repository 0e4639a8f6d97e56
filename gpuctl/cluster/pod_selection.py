"""Select an environment's pods for a command, or explain why a pod cannot be used."""

from __future__ import annotations

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.sync.targets import natural
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.pod_status import runs
from gpuctl.edges.kube.cluster import Cluster


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def all_of(cluster: Cluster, env: Environment, doing: str) -> list[Object]:
    """List the environment's pods in natural order; raises `GpuctlError` if there are none."""
    pods = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    if not pods:
        wrong = f"{env.name} has no pods in the namespace {env.namespace}"
        raise GpuctlError(doing, wrong, "`gpuctl cluster deploy` creates them")
    return sorted(pods, key=lambda pod: natural(name_of(pod)))


def pod_of_rank(cluster: Cluster, env: Environment, doing: str, rank: int = 0, name: str = "") -> Object:
    """Return the pod of a rank or name, running or not; raises `InvalidInput` if the environment has no such pod."""
    wanted_name = name or (f"{env.name}-{rank}" if rank else env.pod_name(0))
    pods = {name_of(pod): pod for pod in all_of(cluster, env, doing)}
    if wanted_name not in pods:
        raise InvalidInput(doing, f"{env.name} has no pod {wanted_name}", f"it has {', '.join(pods)}")
    return pods[wanted_name]


def why_not(pod: Object) -> str:
    """Return why nothing can run in the pod, or "" if something can; it need not be ready for that."""
    if "deletionTimestamp" not in pod["metadata"] and runs(pod, CONTAINER):
        return ""
    state = pod_progress.state(pod)
    return f"it {state.summary}" + (f": {state.trouble}" if state.trouble else "")


def check(pod: Object, doing: str) -> None:
    """Raise `GpuctlError` if nothing can run in the pod."""
    if why := why_not(pod):
        raise GpuctlError(doing, f"{name_of(pod)} is not running: {why}", "`gpuctl cluster status` shows more")
