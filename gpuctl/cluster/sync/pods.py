"""Find the pods to sync to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.cluster.sync.targets import Target, natural, target
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.cluster import Cluster


def labelled(cluster: Cluster, labels: Mapping[str, str], folder: str, container: str = "") -> list[Target]:
    """All pods with these labels, in the order of their numbers."""
    found = cluster.find(cluster.kind("v1", "Pod"), labels)
    targets = [target(pod, folder, container) for pod in found]
    if not targets:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        wrong = f"the namespace {cluster.namespace} has no pod with {wanted}"
        raise GpuctlError("find pods to sync to", wrong, "`gpuctl cluster deploy` makes them")
    return sorted(targets, key=lambda each: natural(each.pod))


def named(cluster: Cluster, names: Sequence[str], folder: str, container: str = "") -> list[Target]:
    """Pods by their names."""
    found = []
    for name in dict.fromkeys(names):
        pod = cluster.get(cluster.kind("v1", "Pod"), name)
        if pod is None:
            raise InvalidInput(f"sync to the pod {name}", f"the namespace {cluster.namespace} has no such pod")
        found.append(target(pod, folder, container))
    return found


def now(cluster: Cluster, before: Target, folder: str) -> Target:
    """How a pod stands now, which may be another one of the same name."""
    pod = cluster.get(cluster.kind("v1", "Pod"), before.pod)
    if pod is None:
        return Target(before.pod, before.container, before.place, "it is not there")
    return target(pod, folder, before.container)
