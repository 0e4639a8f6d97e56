"""Changes in a folder, reported by the operating system; the only file that uses watchfiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from watchfiles import watch

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cancel import Stop

QUIET_MS, AT_MOST_MS = 20, 200  # changes in quick succession are reported together
NOTHING_MS = 500
NOT_UTF8 = "Unable to decode path"  # of watchfiles


def events(source: Path, stop: Stop) -> Iterator[set[str]]:
    """Yield changed paths below the folder, "" for the folder itself; an empty set twice a second if nothing changes.

    A name that is not UTF-8 ends the events after "": watch the folder again.
    """
    batches = watch(
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
        for changed in batches:
            yield {inside for _, path in changed if (inside := _inside(source, path)) is not None}
    except FileNotFoundError:  # the folder, or something in it, was just deleted
        stop.wait(NOTHING_MS / 1000)
        yield set()
    except RuntimeError as error:  # watchfiles cannot name a file whose name is not UTF-8, nor say where it is
        if NOT_UTF8 not in str(error):
            raise
        yield {""}
    except OSError as error:
        hint = "raise fs.inotify.max_user_watches and max_user_instances, or sync a smaller folder"
        raise GpuctlError(f"watch {source}", str(error), hint) from error


def _inside(source: Path, path: str) -> str | None:
    """The changed path in the folder; None if it is outside.

    The library follows links to folders, and reports a change by the link's path: a link to a folder above ours hides
    the real paths of all that is below it.
    """
    folder, name = os.path.split(path)
    if path == str(source):
        return ""
    real = Path(os.path.realpath(folder)) / name
    top = Path(os.path.realpath(source))
    if real == top:
        return ""
    return str(real.relative_to(top)) if real.is_relative_to(top) else None
