"""The pods of an environment that something is to be done in, one or all; why it cannot be, where it cannot."""

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
    """All that are there, in the order of their numbers; `GpuctlError` where there are none."""
    found = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    if not found:
        wrong = f"{env.name} has no pods in the namespace {env.namespace}"
        raise GpuctlError(doing, wrong, "`gpuctl cluster deploy` makes them")
    return sorted(found, key=lambda each: natural(name_of(each)))


def one(cluster: Cluster, env: Environment, doing: str, rank: int = 0, name: str = "") -> Object:
    """The one of this rank, or of this name, whether it runs or not; `InvalidInput` if there is none."""
    wanted = name or (f"{env.name}-{rank}" if rank else env.pod_name(0))
    found = {name_of(each): each for each in all_of(cluster, env, doing)}
    if wanted not in found:
        raise InvalidInput(doing, f"{env.name} has no pod {wanted}", f"it has {', '.join(found)}")
    return found[wanted]


def why_not(pod: Object) -> str:
    """Why nothing can run in it; "" where something can: it need not be ready for that."""
    if "deletionTimestamp" not in pod["metadata"] and runs(pod, CONTAINER):
        return ""
    state = pod_progress.state(pod)
    return f"it {state.words}" + (f": {state.trouble}" if state.trouble else "")


def check(pod: Object, doing: str) -> None:
    """`GpuctlError` where nothing can run in it."""
    if why := why_not(pod):
        raise GpuctlError(doing, f"{name_of(pod)} does not run: {why}", "`gpuctl cluster status` says more")
