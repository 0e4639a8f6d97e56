"""Takes objects away, each exactly as it was found, and waits until they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpuctl.edges.kube.cluster import Cluster, Object

FIRST_PAUSE_S, PAUSE_S = 0.05, 0.3  # most objects are gone at once, pods are not


def remove(
    cluster: Cluster, found: Sequence[Object], limit_s: float, gone: Callable[[Object], None] = lambda _: None
) -> list[Object]:
    """Ask that they go, with what belongs to them first, and wait; those that still are there after the time."""
    end = time.monotonic() + limit_s
    for each in found:
        cluster.delete(each, "Foreground")
    left, pause = list(found), FIRST_PAUSE_S
    while True:
        late = time.monotonic() > end
        here = [each for each in left if _is_there(cluster, each)]
        for each in left:
            if each not in here:
                gone(each)
        left = here
        if late or not left:
            return left
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_S)


def _is_there(cluster: Cluster, found: Object) -> bool:
    """The same one, not another of its name."""
    now = cluster.get(cluster.kind_of(found), found["metadata"]["name"])
    return now is not None and now["metadata"]["uid"] == found["metadata"]["uid"]
