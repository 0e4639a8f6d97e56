"""Changes in folders, reported by the operating system; the only file that uses watchfiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from watchfiles import watch

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cancel import Stop

QUIET_MS, AT_MOST_MS = 20, 200  # changes in quick succession are reported together
NOTHING_MS = 200
GONE_S = 0.5  # before folders are watched again of which one was just deleted, or cannot be named
NOT_UTF8 = "Unable to decode path"  # of watchfiles


def events(source: Path, folders: Sequence[str], stop: Stop) -> Iterator[set[str]]:
    """Yield changed paths in a folder and these folders below it, "" for the folder itself; else empty sets.

    Each folder is watched by itself: the library's recursive watch follows links, out of the folder into whole data
    sets, and to folders above it, whose paths then hide the real ones. A name that is not UTF-8 ends the events after
    "": watch the folder again.
    """
    batches = watch(
        source,
        *(source / folder for folder in folders if _is_utf8(folder)),
        watch_filter=None,
        step=QUIET_MS,
        debounce=AT_MOST_MS,
        rust_timeout=NOTHING_MS,
        yield_on_timeout=True,
        stop_event=stop,
        recursive=False,
        ignore_permission_denied=True,
    )
    try:
        for changed in batches:
            yield {"" if path == str(source) else str(Path(path).relative_to(source)) for _, path in changed}
    except FileNotFoundError:  # the folder, or something in it, was just deleted
        stop.wait(GONE_S)
        yield set()
    except RuntimeError as error:  # watchfiles cannot name a file whose name is not UTF-8, nor say where it is
        if NOT_UTF8 not in str(error):
            raise
        stop.wait(GONE_S)  # reading a folder of such a name is an event itself
        yield {""}
    except OSError as error:
        hint = "raise fs.inotify.max_user_watches and max_user_instances, or sync a smaller folder"
        raise GpuctlError(f"watch {source}", str(error), hint) from error


def _is_utf8(name: str) -> bool:
    """Return whether the library can name it; os.fsdecode replaces other bytes by surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
