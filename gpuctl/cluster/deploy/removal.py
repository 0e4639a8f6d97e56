"""Takes objects away, each exactly as it was found, and waits until they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpuctl.edges.kube.cluster import Cluster, Object

FIRST_PAUSE_S, PAUSE_S = 0.05, 0.3  # most objects are gone at once, pods are not


def remove(
    cluster: Cluster, objects: Sequence[Object], limit_s: float, on_gone: Callable[[Object], None] = lambda _: None
) -> list[Object]:
    """Ask that they go, with what belongs to them first, and wait; those that still are there after the time."""
    end = time.monotonic() + limit_s
    for obj in objects:
        cluster.delete(obj, "Foreground")
    left, pause = list(objects), FIRST_PAUSE_S
    while True:
        late = time.monotonic() > end
        present = [obj for obj in left if _is_there(cluster, obj)]
        for obj in left:
            if obj not in present:
                on_gone(obj)
        left = present
        if late or not left:
            return left
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_S)


def _is_there(cluster: Cluster, obj: Object) -> bool:
    """The same one, not another of its name."""
    now = cluster.get(cluster.kind_of(obj), obj["metadata"]["name"])
    return now is not None and now["metadata"]["uid"] == obj["metadata"]["uid"]
