"""A GPU pod and its objects as they are in the cluster; what gpuctl did not make is refused."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.cluster import Cluster, Request
from gpuctl.eks.gpu_pod import model
from gpuctl.workflows.eks_access import Place

Object = dict[str, Any]
LOOK_S, GONE_S = 1.0, 120.0
MERGE = "application/merge-patch+json"


def pod_of(cluster: Cluster, place: Place) -> Object | None:
    """The pod; None if it does not exist, or ends already. `InvalidInput` if gpuctl did not make it."""
    pod = pod_or_ending(cluster, place)
    if pod is not None and is_ending(pod):
        await_end(cluster, place, pod)
        return None
    return pod


def pod_or_ending(cluster: Cluster, place: Place) -> Object | None:
    """The pod, also while it ends."""
    return ours(cluster, place, "Pod", place.pod)


def ours(cluster: Cluster, place: Place, kind: str, name: str) -> Object | None:
    """An object by name, None if it does not exist; `InvalidInput` if gpuctl did not make it for this pod."""
    item = cluster.get(cluster.kind("v1", kind), name)
    if item is not None and (item["metadata"].get("labels") or {}).get(model.POD_LABEL) != place.pod:
        wrong = f"{cluster.namespace} has a {kind} {name} that gpuctl did not make for this pod"
        raise InvalidInput(f"use the pod {place.pod}", wrong, "choose another name with --pod")
    return item


def is_ending(pod: Object) -> bool:
    """True for a pod that was deleted and still exists."""
    return "deletionTimestamp" in pod["metadata"]


def await_end(cluster: Cluster, place: Place, pod: Object) -> None:
    """Wait until a deleted pod is gone; `GpuctlError` if that takes more than GONE_S."""
    end = time.monotonic() + GONE_S
    while True:
        now = cluster.get(cluster.kind("v1", "Pod"), place.pod)
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        if time.monotonic() > end:
            wrong = f"the pod {place.pod} still ends after {GONE_S:g} s"
            raise GpuctlError(f"make the pod {place.pod}", wrong, "is its node up? `kubectl get nodes` shows it")
        time.sleep(LOOK_S)


def touch(cluster: Cluster, place: Place, pod: Object, annotation: str, content: str) -> None:
    """Change an annotation of the pod, so that its node refreshes mounted Secrets and ConfigMaps at once."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    path = cluster.path_of(cluster.kind("v1", "Pod"), place.pod)
    body = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {annotation: digest}}}
    cluster.ask(Request(f"change the pod {place.pod}", "PATCH", path, (), body, MERGE))
