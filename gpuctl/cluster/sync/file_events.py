"""Changes in a local folder, also where another folder takes its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuctl.cluster.sync.scan import folder_id
from gpuctl.edges import folder_events
from gpuctl.edges.kube.cancel import Stop

GONE_S = 0.5  # between two looks for a folder that does not exist


def changes(source: Path, stop: Stop) -> Iterator[set[str]]:
    """Yield changed paths, "" for the whole folder; an empty set twice a second if nothing changes.

    If another folder takes the name (`rm -rf` and `git clone`), it is watched from then on: all of it is new.
    """
    while not stop.is_set():
        folder = folder_id(source)
        if folder is None:
            stop.wait(GONE_S)
            yield set()
        else:
            yield from _watch_until_replaced(source, folder, stop)


def _watch_until_replaced(source: Path, folder: tuple[int, int], stop: Stop) -> Iterator[set[str]]:
    """Yield changes until another folder, or none, has the name. The first set covers everything before the watch
    began.
    """
    paths = {""}
    for changed in folder_events.events(source, stop):
        paths |= changed
        gone = folder_id(source) != folder
        yield paths | {""} if gone else paths
        if gone or "" in changed:  # a moved or deleted folder is no longer watched, even if it exists again
            return
        paths = set()
