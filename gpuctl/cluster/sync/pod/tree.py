"""What is in a folder: kinds, contents by their hash, and stamps that change whenever something is written."""

# Names are bytes here, as the kernel has them, whatever language the pod is set to: pathlib has none of those.
# ruff: noqa: PTH115, PTH118, PTH123
from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

FILE, LINK, FOLDER, OTHER, BLOCKED, UNREADABLE = "file", "link", "folder", "other", "blocked", "unreadable"
OURS = ".gpuctl-sync"
PART = 1 << 20

if TYPE_CHECKING:
    # size, time of the last write, time of the last change of any kind (nobody can set it), inode
    Stamp = list[int]
    # kind, hash or where a link leads, mode, stamp
    State = tuple[str, str, int, Stamp | None]


def place(root: bytes, path: str) -> bytes:
    """Where a path of ours is; ValueError where it leads out of the folder."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or parts[0] == OURS:
        raise ValueError(f"no path of ours: {path!r}")
    return os.path.join(root, path.encode("utf-8", "surrogateescape"))


def stamp(found: os.stat_result) -> Stamp:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def blocked(root: bytes, path: str, known: dict[str, str] | None = None) -> str:
    """What stands in the way to a path: a file or a link where a folder should be. Empty: nothing.

    `known`: what was found out about folders in the same look.
    """
    above = path.rpartition("/")[0]
    if not above:
        return ""
    if known is not None and above in known:
        return known[above]
    found = blocked(root, above, known)
    with contextlib.suppress(FileNotFoundError):
        if not found and not stat.S_ISDIR(os.lstat(place(root, above)).st_mode):
            found = above
    if known is not None:
        known[above] = found
    return found


def look(root: bytes, path: str, known: State | None = None, ways: dict[str, str] | None = None) -> State | None:
    """What is at a path; None: nothing. A file that has the stamp of what is known is not read again.

    UNREADABLE: we may not look at it, or the disk does not let us; so it is not what anybody wants there.
    `ways`: of several looks in a row, what the first found out about folders.
    """
    beat()
    at = place(root, path)
    try:
        way = blocked(root, path, ways)
        return (BLOCKED, way, 0, None) if way else _found(at, known)
    except FileNotFoundError:
        return None
    except OSError:
        return UNREADABLE, "", 0, None


def _found(at: bytes, known: State | None) -> State:
    found = os.lstat(at)
    mode, now = stat.S_IMODE(found.st_mode), stamp(found)
    if stat.S_ISDIR(found.st_mode):
        return FOLDER, "", mode, None
    if stat.S_ISLNK(found.st_mode):
        return LINK, os.readlink(at).decode("utf-8", "surrogateescape"), 0o777, now
    if not stat.S_ISREG(found.st_mode):
        return OTHER, "", mode, now
    if known is not None and known[0] == FILE and known[3] == now:
        return FILE, known[1], mode, now
    return FILE, hash_of(at), mode, now


def beat() -> None:
    """Called all along while paths are looked at and files read; `serve` has it say that it is at work."""


def hash_of(at: bytes) -> str:
    """SHA-256 of a file."""
    with open(at, "rb") as stream:
        return hash_of_stream(stream)


def hash_of_stream(stream: BinaryIO) -> str:
    """SHA-256 of an open file from here on: what the kernel has of it, or the disk."""
    found = hashlib.sha256()
    part = stream.read(PART)
    while part:
        found.update(part)
        beat()
        part = stream.read(PART)
    return found.hexdigest()
