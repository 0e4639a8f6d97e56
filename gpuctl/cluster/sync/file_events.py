"""What changes in a folder here, as the system tells it; the only file that knows the library for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from watchfiles import watch

from gpuctl.cluster.sync.scan import which
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cancel import Stop

QUIET_MS, AT_MOST_MS = 20, 200  # changes that follow each other closely are told together
NOTHING_MS = 500


def changes(source: Path, stop: Stop) -> Iterator[set[str]]:
    """Paths in the folder at which something changed, "" for all of them; empty twice a second where nothing does.

    Another folder that takes its name (`rm -rf` and `git clone` make one) is watched from then on: all of it is new.
    """
    while not stop.is_set():
        folder = which(source)
        if folder is None:
            stop.wait(NOTHING_MS / 1000)
            yield set()
        else:
            yield from _while_there(source, folder, stop)


def _while_there(source: Path, folder: tuple[int, int], stop: Stop) -> Iterator[set[str]]:
    """The same until another folder, or none, has its name. Whatever was before it was watched is in the first."""
    paths = {""}
    for found in _told(source, stop):
        paths |= found
        gone = which(source) != folder
        yield paths | {""} if gone else paths
        if gone or "" in found:  # a folder that was moved or deleted is watched no longer, even if it is there again
            return
        paths = set()


def _told(source: Path, stop: Stop) -> Iterator[set[str]]:
    told = watch(
        source,
        watch_filter=None,
        step=QUIET_MS,
        debounce=AT_MOST_MS,
        rust_timeout=NOTHING_MS,
        yield_on_timeout=True,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    try:
        for found in told:
            yield {_inside(source, path) for _, path in found}
    except FileNotFoundError:  # it, or what is in it, has just gone
        stop.wait(NOTHING_MS / 1000)
        yield set()
    except OSError as error:
        hint = "raise fs.inotify.max_user_watches and max_user_instances, or sync a smaller folder"
        raise GpuctlError(f"watch {source}", str(error), hint) from error


def _inside(source: Path, path: str) -> str:
    inside = str(Path(path).relative_to(source))
    return "" if inside == "." else inside
