"""Changes in a local folder and its folders, also in new ones, and where another folder takes its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuctl.cluster.sync.scan import folder_id
from gpuctl.edges import folder_events
from gpuctl.edges.kube.cancel import Stop

GONE_S = 0.5  # between two looks for a folder that does not exist
# Reading a folder whose name is not UTF-8 is an event that again asks for reading all: for most of the time, do not.
REST, MOST_REST_S = 10.0, 30.0  # times the duration of the last reading, up to this


def changes(source: Path, folders: Callable[[], set[str]], stop: Stop) -> Iterator[set[str]]:
    """Yield changed paths, "" for the whole folder; an empty set a few times a second if nothing changes.

    `folders` returns those below the folder to watch: excluded ones and links are not among them. They are watched
    again when the caller, who reads each change before the next, knows new ones. If another folder takes the name
    (`rm -rf` and `git clone`), it is watched from then on: all of it is new.
    """
    while not stop.is_set():
        folder = folder_id(source)
        if folder is None:
            stop.wait(GONE_S)
            yield set()
        else:
            yield from _watch_until_replaced(source, folders, folder, stop)


def _watch_until_replaced(
    source: Path, folders: Callable[[], set[str]], folder: tuple[int, int], stop: Stop
) -> Iterator[set[str]]:
    """Yield changes until there are new folders, or another folder, or none, has the name. The first set covers
    everything before the watch began.
    """
    paths, watched = {""}, folders()
    for changed in folder_events.events(source, sorted(watched), stop):
        paths |= changed
        gone = folder_id(source) != folder
        started = time.monotonic()
        yield paths | {""} if gone else paths
        if "" in changed and not gone:
            stop.wait(min(REST * (time.monotonic() - started), MOST_REST_S))
        # A moved or deleted folder is no longer watched, even if it exists again.
        if gone or "" in changed or not folders() <= watched:
            return
        paths = set()
