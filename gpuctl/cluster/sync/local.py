"""The folder here: its files, their hashes and what of them goes to pods.

Files up to `SMALL` are read once for all pods that need the same; larger ones for each pod, as they are sent.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.cluster.sync import scan
from gpuctl.cluster.sync.excludes import Excludes
from gpuctl.cluster.sync.model import FILE, Item, Kept
from gpuctl.cluster.sync.scan import Found
from gpuctl.remote.supervisor import frames

SMALL = 1 << 18  # bytes: files up to this are read whole
PART = 1 << 18
KEPT = 64 << 20  # bytes of batches that are kept for the other pods
TRIES = 3
# A file that was written so shortly before it was read may be written again without another time.
RACY_NS = 2 * 10**9


MOVES = "it kept changing while it was read"
Files = tuple[tuple[str, Item], ...]


@dataclass(frozen=True)
class Batch:
    """Small files as a message; their hashes and times as sent, and which could not be read."""

    message: bytes
    sent: Mapping[str, tuple[str, Item]]
    failed: tuple[Kept, ...]


class Moving(Exception):
    """A file changed each time it was read."""


class Local:
    """A folder to sync. Several threads, one a pod, use it at the same time."""

    def __init__(self, source: Path, excludes: Excludes) -> None:
        self.source, self.excludes = source, excludes
        self.name = f"{_who()}:{source}"
        self.found = scan.scan(source, excludes)
        self.version = 1
        self._hashes: dict[str, tuple[Item, str]] = {}
        self._batches: dict[tuple[int, Files], Future[Batch]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def look_again(self, changed: Iterable[str] | None = None) -> list[str]:
        """Take in what changed at these paths (None: anywhere); where something that pods should know did."""
        before = self.found
        self.found = (
            scan.scan(self.source, self.excludes)
            if changed is None
            else scan.again(self.source, self.excludes, before, changed)
        )
        differs = _differences(before, self.found)
        self.version += bool(differs)
        return differs

    def spared(self, found: Found, path: str) -> bool:
        """Whether nothing is known of a path: it is left out, or it or a folder above it could not be read."""
        return found.knows_nothing_of(path) or self.excludes.any(path, False) or self.excludes.any(path, True)

    def hashes(self, paths: Iterable[str]) -> dict[str, str]:
        """SHA-256 of files; one that cannot be read is missing, and will be told of when it is sent."""
        found = {}
        for path in paths:
            item = self.found.items.get(path)
            if item is not None and (value := self._hash(path, item)):
                found[path] = value
        return found

    def _hash(self, path: str, item: Item) -> str:
        known = self._hashes.get(path)
        if known and known[0] == item:
            return known[1]
        try:
            with (self.source / path).open("rb") as stream:
                value = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:
            return ""
        if as_sent(item) == item:
            self._hashes[path] = item, value
        return value

    # ---- what goes to pods ----------------------------------------------------------------------------------------

    def batch(self, files: Files) -> Batch:
        """Small files as one message; made once, however many pods ask for it."""
        key = (self.version, files)
        with self._lock:
            known = self._batches.get(key)
            if known is None:
                known = self._batches[key] = Future()
                mine = True
            else:
                mine = False
        if mine:
            try:
                known.set_result(self._pack(files))
            except BaseException as error:
                known.set_exception(error)  # others wait for it
                raise
            self._make_room(len(known.result().message))
        return known.result()

    def _pack(self, files: Files) -> Batch:
        parts, sent, failed = [], {}, []
        for path, _ in files:
            try:
                item, value, content = self._read(path)
            except FileNotFoundError:
                continue  # it has just gone: the next look at the folder says so
            except Moving:
                failed.append(Kept(path, MOVES))
            except OSError as error:
                failed.append(Kept(path, f"cannot read it here: {error.strerror}"))
            else:
                now = as_sent(item)
                head = {"path": path, "mode": now.mode, "source": now.source, "value": value}
                parts.append(frames.whole(head, content))
                sent[path] = value, now
        message = frames.raw(frames.PACK, zlib.compress(b"".join(parts), 1)) if parts else b""
        return Batch(message, sent, tuple(failed))

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._size += size
            while self._size > KEPT and len(self._batches) > 1:
                oldest = next(iter(self._batches))
                if not self._batches[oldest].done():
                    return
                self._size -= len(self._batches.pop(oldest).result().message)

    def _read(self, path: str) -> tuple[Item, str, bytes]:
        for _ in range(TRIES):
            with (self.source / path).open("rb") as stream:
                before = os.fstat(stream.fileno())
                content = stream.read(before.st_size)
                after = os.fstat(stream.fileno())
            if _same(before, after, len(content)):
                return scan.item(FILE, after), hashlib.sha256(content).hexdigest(), content
            time.sleep(0.02)
        raise Moving(path)

    def large(self, path: str, sent: dict[str, tuple[str, Item]]) -> Iterator[bytes]:
        """A large file as messages, as it is read; `sent` then has its hash, and its times as sent.

        OSError where it cannot be read; `Moving` where it never stays the same while it is read.
        """
        for _ in range(TRIES):
            with (self.source / path).open("rb") as stream:
                before, digest, size = os.fstat(stream.fileno()), hashlib.sha256(), 0
                yield _begin(path, scan.item(FILE, before))
                # No further than it was long: a log that grows has no end.
                while part := stream.read(min(PART, before.st_size - size)):
                    size += len(part)
                    digest.update(part)
                    yield frames.raw(frames.DATA, zlib.compress(part, 1))
                after = os.fstat(stream.fileno())
            if _same(before, after, size):
                sent[path] = digest.hexdigest(), as_sent(scan.item(FILE, after))
                yield _end(digest.hexdigest())
                return
            yield _end("")
        raise Moving(path)


def _differences(before: Found, now: Found) -> list[str]:
    """Paths that are something else now, or nothing, or cannot be read any more, or can again."""
    old = before.items
    paths = {path for path, item in now.items.items() if old.get(path) is not item and old.get(path) != item}
    paths |= old.keys() - now.items.keys()
    paths |= before.special - now.special
    known = {path for path in paths if not now.knows_nothing_of(path)}
    unread = {path or "." for path, _ in before.unread.items() ^ now.unread.items()}
    return sorted(known | unread)


def _begin(path: str, item: Item) -> bytes:
    return frames.pack(frames.FILE, {"path": path, "mode": item.mode, "source": as_sent(item).source})


def _end(value: str) -> bytes:
    return frames.pack(frames.END, {"value": value})


def as_sent(item: Item) -> Item:
    """Its times as the record is to have them: of a file that has just been written, none that prove anything."""
    size, written, changed = item.source
    if time.time_ns() - max(written, changed) > RACY_NS:
        return item
    return replace(item, source=(size, written, 0))


def _same(before: os.stat_result, after: os.stat_result, size: int) -> bool:
    def stamp(found: os.stat_result) -> tuple[int, ...]:
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns

    return stamp(before) == stamp(after) and after.st_size == size


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
