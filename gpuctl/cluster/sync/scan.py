"""Read a local folder: its items, excluded paths, and unreadable paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuctl.cluster.sync.excludes import Excludes
from gpuctl.cluster.sync.model import FILE, FOLDER, LINK, Item


@dataclass(frozen=True)
class FolderScan:
    """Files, links and folders by their paths.

    `left_out`: excluded paths, without those below them. `unread`: path -> error; nothing is known about paths below
    it, and with "" about any. `special`: sockets, pipes and devices.
    """

    items: Mapping[str, Item] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    special: frozenset[str] = frozenset()

    def is_unknown(self, path: str) -> bool:
        """Return whether a path, or a folder above it, is unreadable or special."""
        parts = path.split("/")
        above = ["", *("/".join(parts[:count]) for count in range(1, len(parts) + 1))]
        return any(parent in self.unread or parent in self.special for parent in above)


class _Walk:
    """Collects the items below some paths."""

    def __init__(self, source: Path, excludes: Excludes) -> None:
        self.source, self.excludes = source, excludes
        self.top = folder_id(source)
        self.items: dict[str, Item] = {}
        self.left_out: set[str] = set()
        self.unread: dict[str, str] = {}
        self.special: set[str] = set()

    def folder(self, path: str) -> None:
        """Collect everything in a folder; "" is the top."""
        waiting = [path]
        while waiting:
            at = waiting.pop()
            try:
                with os.scandir(self.source / at) as entries:
                    names = [(f"{at}/{entry.name}" if at else entry.name, entry) for entry in entries]
            except FileNotFoundError:
                self.items.pop(at, None)  # just deleted
                continue
            except OSError as error:
                self.unread[at] = error.strerror or str(error)
                continue
            waiting += [name for name, entry in names if self.visit(name, entry)]

    def visit(self, path: str, entry: os.DirEntry[str] | Path) -> bool:
        """Record one path; return whether it is a folder to descend into."""
        try:
            info = entry.stat(follow_symlinks=False)
            to = str((self.source / path).readlink()) if stat.S_ISLNK(info.st_mode) else ""
        except FileNotFoundError:
            return False
        except OSError as error:
            self.unread[path] = error.strerror or str(error)
            return False
        folder = stat.S_ISDIR(info.st_mode)
        if self.excludes.excludes(path, folder=folder):
            self.left_out.add(path)
        elif (kind := _KINDS.get(stat.S_IFMT(info.st_mode))) is None:
            self.special.add(path)
        else:
            self.items[path] = item(kind, info, to)
            return folder
        return False


def folder_id(source: Path) -> tuple[int, int] | None:
    """Device and inode of the folder with this name; None if there is none."""
    try:
        info = source.stat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None


_KINDS = {stat.S_IFREG: FILE, stat.S_IFLNK: LINK, stat.S_IFDIR: FOLDER}


def item(kind: str, info: os.stat_result, to: str = "") -> Item:
    """Build the item of a path. A folder's times change with its content and are ignored."""
    mode = 0o777 if kind == LINK else stat.S_IMODE(info.st_mode) & 0o777
    times = (0, 0, 0) if kind == FOLDER else (info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return Item(kind, mode, times, to)


def scan(source: Path, excludes: Excludes) -> FolderScan:
    """Read a whole folder."""
    walk = _Walk(source, excludes)
    walk.folder("")
    return _result(walk)


def rescan(source: Path, excludes: Excludes, before: FolderScan, changed: Iterable[str]) -> FolderScan:
    """Read changed paths again; nothing else is read."""
    tops = sorted(_topmost(changed))
    if "" in tops:
        return scan(source, excludes)
    walk = _Walk(source, excludes)
    walk.items = {path: item_below for path, item_below in before.items.items() if not _below(path, tops)}
    walk.left_out = {path for path in before.left_out if not _below(path, tops)}
    walk.unread = {path: why for path, why in before.unread.items() if not _below(path, tops)}
    walk.special = {path for path in before.special if not _below(path, tops)}
    for path in tops:
        above = path.rpartition("/")[0]
        if above and walk.items.get(above, Item("", 0, (0, 0, 0))).kind != FOLDER:
            continue  # its folder is deleted, excluded, or reported separately
        if walk.visit(path, source / path):
            walk.folder(path)
    return _result(walk)


def _result(walk: _Walk) -> FolderScan:
    """A folder that was moved away or replaced during the scan is unknown, not empty."""
    current_id = folder_id(walk.source)
    if current_id is None or current_id != walk.top:
        walk.unread.setdefault(
            "", "the folder does not exist" if current_id is None else "it was replaced while it was read"
        )
    return FolderScan(walk.items, frozenset(walk.left_out), walk.unread, frozenset(walk.special))


def _topmost(paths: Iterable[str]) -> Iterator[str]:
    """Paths that are not below another one."""
    all_paths = set(paths)
    for path in all_paths:
        parts = path.split("/")
        if not any("/".join(parts[:count]) in all_paths for count in range(1, len(parts))):
            yield path


def _below(path: str, tops: list[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)
