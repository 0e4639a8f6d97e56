"""What a killed gpuctl left on a cluster, and its removal: only our own, and only of runs whose time is over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpuctl.edges.kube.cluster import Cluster, Kind, Object
from gpuctl.edges.kube.errors import Forbidden
from gpuctl.nccl.runners.kube import mpijob
from gpuctl.nccl.runners.kube.model import BY, LASTS, OURS, RUN

REMOVAL_S = 120.0


def kinds(cluster: Cluster) -> list[Kind]:
    """All kinds of which a run has objects; first what makes pods, then the pods, which hold the GPUs."""
    own = [cluster.kind("v1", kind) for kind in ("Pod", "Service", "Secret")]
    return [cluster.kind(mpijob.API, mpijob.KIND), *own] if cluster.serves(mpijob.API, mpijob.KIND) else own


def remove(cluster: Cluster, by: str) -> list[str]:
    """Remove those of this person's runs that are over by the cluster's clock; the names of the runs.

    A pod may take a while to go; it is not waited for.
    """
    found = [each for kind in kinds(cluster) for each in _ours(cluster, kind)]
    over = runs_over(found, by, cluster.now)
    for each in found:
        if each["metadata"]["labels"].get(RUN) in over:
            cluster.delete(each)
    return sorted(over)


def _ours(cluster: Cluster, kind: Kind) -> list[Object]:
    try:
        return cluster.find(kind, OURS)
    except Forbidden:
        if kind.kind != mpijob.KIND:
            raise
        return []  # who may not even list them has made none


def runs_over(found: Iterable[Object], by: str, now: float | None) -> set[str]:
    """The runs of `by` all of whose objects have outlived their time; none where the time is not known."""
    state: dict[str, list[bool]] = {}
    for each in found:
        run = each["metadata"]["labels"].get(RUN)
        if run:
            state.setdefault(run, []).append(_is_over(each, by, now))
    return {run for run, over in state.items() if all(over)}


def _is_over(found: Object, by: str, now: float | None) -> bool:
    meta = found["metadata"]
    notes = meta.get("annotations") or {}
    try:
        made = datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
        return notes.get(BY) == by and now is not None and now > made + float(notes[LASTS])
    except (KeyError, ValueError):
        return False
