"""Delete exactly the given objects, by UID, and wait until they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpuctl.edges.kube.cluster import Cluster, Object

FIRST_PAUSE_S, PAUSE_S = 0.05, 0.3  # most objects disappear at once, pods do not


def remove(
    cluster: Cluster,
    objects: Sequence[Object],
    limit_s: float,
    on_gone: Callable[[Object], None] = lambda _: None,
    propagation: str = "Foreground",
) -> list[Object]:
    """Delete objects and wait; returns those that still exist after the time limit.

    `propagation`: what becomes of their dependents; "Orphan" leaves them as they are.
    """
    end = time.monotonic() + limit_s
    for obj in objects:
        cluster.delete(obj, propagation)
    left, pause = list(objects), FIRST_PAUSE_S
    while True:
        late = time.monotonic() > end
        present = [obj for obj in left if _exists(cluster, obj)]
        for obj in left:
            if obj not in present:
                on_gone(obj)
        left = present
        if late or not left:
            return left
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_S)


def _exists(cluster: Cluster, obj: Object) -> bool:
    """Return True if the same object still exists, not another of its name."""
    now = cluster.get(cluster.kind_of(obj), obj["metadata"]["name"])
    return now is not None and now["metadata"]["uid"] == obj["metadata"]["uid"]
