"""Find and remove objects that a killed gpuctl left on a cluster: only our own, of runs whose time is over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpuctl.core.run_history import current_user
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Cluster, Kind, Object, connect
from gpuctl.nccl.runners.kube import mpijob
from gpuctl.nccl.runners.kube.model import BY, LASTS, OURS, RUN

REMOVAL_S = 120.0


def kinds(cluster: Cluster) -> list[Kind]:
    """Kinds of a run's objects: first those that create pods, then the pods, which hold the GPUs."""
    core = [cluster.kind("v1", kind) for kind in ("Pod", "Service", "Secret")]
    return [cluster.kind(mpijob.API, mpijob.KIND), *core] if cluster.serves(mpijob.API, mpijob.KIND) else core


def remove_leftovers(context: str, namespace: str) -> list[str]:
    """`remove` for the current user, on the cluster of a kubeconfig context; "" for the current one."""
    return remove(connect(context, namespace), current_user())


def remove(cluster: Cluster, actor: str) -> list[str]:
    """Remove objects of this user's runs that are over by the cluster's clock; returns the names of the runs.

    Does not wait until pods have terminated.
    """
    objects = [object_ for kind in kinds(cluster) for object_ in _ours(cluster, kind)]
    over = runs_over(objects, actor, cluster.now)
    for object_ in objects:
        if object_["metadata"]["labels"].get(RUN) in over:
            cluster.delete(object_)
    return sorted(over)


def _ours(cluster: Cluster, kind: Kind) -> list[Object]:
    try:
        return cluster.find(kind, OURS)
    except Forbidden:
        if kind.kind != mpijob.KIND:
            raise
        return []  # users who may not list them cannot have created any


def runs_over(objects: Iterable[Object], actor: str, now: float | None) -> set[str]:
    """Runs of the user `by` whose objects have all outlived their time; none if the cluster's time is unknown."""
    state: dict[str, list[bool]] = {}
    for object_ in objects:
        run = object_["metadata"]["labels"].get(RUN)
        if run:
            state.setdefault(run, []).append(_is_over(object_, actor, now))
    return {run for run, over in state.items() if all(over)}


def _is_over(object_: Object, actor: str, now: float | None) -> bool:
    meta = object_["metadata"]
    notes = meta.get("annotations") or {}
    try:
        made = datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
        return notes.get(BY) == actor and now is not None and now > made + float(notes[LASTS])
    except (KeyError, ValueError):
        return False
