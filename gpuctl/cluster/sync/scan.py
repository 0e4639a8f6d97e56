"""Read a folder here: what is in it, what is left out, and what cannot be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuctl.cluster.sync.excludes import Excludes
from gpuctl.cluster.sync.model import FILE, FOLDER, LINK, Item


@dataclass(frozen=True)
class Found:
    """A folder's files, links and folders by their paths in it.

    `left_out`: by a pattern, without what is below them. `unread`: why what is there could not be read; such a path
    says nothing of what is below it, and "" says nothing of anything. `special`: sockets, pipes and devices.
    """

    items: Mapping[str, Item] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    special: frozenset[str] = frozenset()

    def knows_nothing_of(self, path: str) -> bool:
        """Whether it, or a folder above it, could not be read or is nothing to take."""
        parts = path.split("/")
        above = ["", *("/".join(parts[:count]) for count in range(1, len(parts) + 1))]
        return any(each in self.unread or each in self.special for each in above)


class _Walk:
    """Collects what is below some paths."""

    def __init__(self, source: Path, excludes: Excludes) -> None:
        self.source, self.excludes = source, excludes
        self.top = which(source)
        self.items: dict[str, Item] = {}
        self.left_out: set[str] = set()
        self.unread: dict[str, str] = {}
        self.special: set[str] = set()

    def folder(self, path: str) -> None:
        """All that is in a folder; "" is the top."""
        waiting = [path]
        while waiting:
            at = waiting.pop()
            try:
                with os.scandir(self.source / at) as entries:
                    names = [(f"{at}/{each.name}" if at else each.name, each) for each in entries]
            except FileNotFoundError:
                self.items.pop(at, None)  # it has just gone
                continue
            except OSError as error:
                self.unread[at] = error.strerror or str(error)
                continue
            waiting += [name for name, each in names if self.one(name, each)]

    def one(self, path: str, entry: os.DirEntry[str] | Path) -> bool:
        """Take note of one path; whether it is a folder to look into."""
        try:
            found = entry.stat(follow_symlinks=False)
            to = str((self.source / path).readlink()) if stat.S_ISLNK(found.st_mode) else ""
        except FileNotFoundError:
            return False
        except OSError as error:
            self.unread[path] = error.strerror or str(error)
            return False
        folder = stat.S_ISDIR(found.st_mode)
        if self.excludes.one(path, folder):
            self.left_out.add(path)
        elif (kind := _KINDS.get(stat.S_IFMT(found.st_mode))) is None:
            self.special.add(path)
        else:
            self.items[path] = item(kind, found, to)
            return folder
        return False


def which(source: Path) -> tuple[int, int] | None:
    """Which folder has this name now: its device and inode; None where there is none."""
    try:
        found = source.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


_KINDS = {stat.S_IFREG: FILE, stat.S_IFLNK: LINK, stat.S_IFDIR: FOLDER}


def item(kind: str, found: os.stat_result, to: str = "") -> Item:
    """What a sync wants to know of a path. A folder's times change with what is in it, and say nothing."""
    mode = 0o777 if kind == LINK else stat.S_IMODE(found.st_mode) & 0o777
    times = (0, 0, 0) if kind == FOLDER else (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return Item(kind, mode, times, to)


def scan(source: Path, excludes: Excludes) -> Found:
    """All of a folder."""
    walk = _Walk(source, excludes)
    walk.folder("")
    return _found(walk)


def again(source: Path, excludes: Excludes, before: Found, changed: Iterable[str]) -> Found:
    """The same after something changed at these paths; nothing else is looked at."""
    tops = sorted(_tops(changed))
    if "" in tops:
        return scan(source, excludes)
    walk = _Walk(source, excludes)
    walk.items = {path: each for path, each in before.items.items() if not _below(path, tops)}
    walk.left_out = {path for path in before.left_out if not _below(path, tops)}
    walk.unread = {path: why for path, why in before.unread.items() if not _below(path, tops)}
    walk.special = {path for path in before.special if not _below(path, tops)}
    for path in tops:
        above = path.rpartition("/")[0]
        if above and walk.items.get(above, Item("", 0, (0, 0, 0))).kind != FOLDER:
            continue  # its folder is gone, left out, or told of by itself
        if walk.one(path, source / path):
            walk.folder(path)
    return _found(walk)


def _found(walk: _Walk) -> Found:
    """A folder that was moved away, or made anew, while it was read was not emptied: nothing is known of it."""
    now = which(walk.source)
    if now is None or now != walk.top:
        walk.unread.setdefault("", "the folder is not there" if now is None else "it was replaced while it was read")
    return Found(walk.items, frozenset(walk.left_out), walk.unread, frozenset(walk.special))


def _tops(paths: Iterable[str]) -> Iterator[str]:
    """Those that are not below another."""
    known = set(paths)
    for path in known:
        parts = path.split("/")
        if not any("/".join(parts[:count]) in known for count in range(1, len(parts))):
            yield path


def _below(path: str, tops: list[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)
