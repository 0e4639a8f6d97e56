"""Content of a folder: kinds, hashes, and stamps that change with every write."""

# Names are bytes here, as in the kernel, whatever the pod's locale: pathlib does not support those.
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
    # size, mtime, ctime (cannot be set by anybody), inode
    Stamp = list[int]
    # kind, hash or target of a link, mode, stamp
    State = tuple[str, str, int, Stamp | None]


def place(root: bytes, path: str) -> bytes:
    """The absolute path of a synced path; ValueError if it leads out of the folder."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or parts[0] == OURS:
        raise ValueError(f"not a path in the synced folder: {path!r}")
    return os.path.join(root, path.encode("utf-8", "surrogateescape"))


def stamp(info: os.stat_result) -> Stamp:
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def blocked(root: bytes, path: str, known: dict[str, str] | None = None) -> str:
    """The file or link that is in the way where a folder should be. Empty: nothing.

    `known`: results for folders during the same pass.
    """
    above = path.rpartition("/")[0]
    if not above:
        return ""
    if known is not None and above in known:
        return known[above]
    blocking = blocked(root, above, known)
    with contextlib.suppress(FileNotFoundError):
        if not blocking and not stat.S_ISDIR(os.lstat(place(root, above)).st_mode):
            blocking = above
    if known is not None:
        known[above] = blocking
    return blocking


def read_state(
    root: bytes, path: str, known: State | None = None, blocked_folders: dict[str, str] | None = None
) -> State | None:
    """The state of a path; None: nothing there. A file with the stamp of `known` is not read again.

    UNREADABLE: permission denied or a disk error; never equal to the desired state. `blocked_folders`: results for
    folders during the same pass.
    """
    beat()
    at = place(root, path)
    try:
        blocking = blocked(root, path, blocked_folders)
        return (BLOCKED, blocking, 0, None) if blocking else _state_of(at, known)
    except FileNotFoundError:
        return None
    except OSError:
        return UNREADABLE, "", 0, None


def _state_of(at: bytes, known: State | None) -> State:
    info = os.lstat(at)
    mode, current_stamp = stat.S_IMODE(info.st_mode), stamp(info)
    if stat.S_ISDIR(info.st_mode):
        return FOLDER, "", mode, None
    if stat.S_ISLNK(info.st_mode):
        return LINK, os.readlink(at).decode("utf-8", "surrogateescape"), 0o777, current_stamp
    if not stat.S_ISREG(info.st_mode):
        return OTHER, "", mode, current_stamp
    if known is not None and known[0] == FILE and known[3] == current_stamp:
        return FILE, known[1], mode, current_stamp
    return FILE, hash_of(at), mode, current_stamp


def beat() -> None:
    """Called repeatedly while paths are read; `serve` makes it send heartbeats."""


def hash_of(at: bytes) -> str:
    """SHA-256 of a file."""
    with open(at, "rb") as stream:
        return hash_of_stream(stream)


def hash_of_stream(stream: BinaryIO) -> str:
    """SHA-256 of an open file from its current position, as read back from the kernel or disk."""
    digest = hashlib.sha256()
    part = stream.read(PART)
    while part:
        digest.update(part)
        beat()
        part = stream.read(PART)
    return digest.hexdigest()
