"""The local folder: its files, their hashes, and the messages that carry them to pods.

Files up to `SMALL` are read once for all pods that need the same ones; larger files are read again for each pod.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.cluster.sync import scan
from gpuctl.cluster.sync.excludes import Excludes
from gpuctl.cluster.sync.model import FILE, FOLDER, Item, Kept
from gpuctl.cluster.sync.scan import FolderScan
from gpuctl.remote.supervisor import frames

SMALL = 1 << 18  # bytes; smaller files are read at once
PART = 1 << 18
CACHE_BYTES = 64 << 20  # batches cached for the other pods
TRIES = 3
# A file modified this recently may change again without a new timestamp.
RACY_NS = 2 * 10**9


KEEPS_CHANGING = "it kept changing while it was read"
Files = tuple[tuple[str, Item], ...]


@dataclass(frozen=True)
class Batch:
    """Small files as one message; their hashes and times as sent, and the files that could not be read."""

    message: bytes
    sent: Mapping[str, tuple[str, Item]]
    failed: tuple[Kept, ...]


class KeepsChanging(Exception):
    """A file changed during every attempt to read it."""


class Local:
    """A folder to sync. Thread-safe: used by one thread per pod."""

    def __init__(self, source: Path, excludes: Excludes) -> None:
        self.source, self.excludes = source, excludes
        self.name = f"{_who()}:{source}"
        self.scanned = scan.scan(source, excludes)
        self.version = 1
        self._hashes: dict[str, tuple[Item, str]] = {}
        self._batches: dict[tuple[int, Files], Future[Batch]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def folders(self) -> set[str]:
        """Paths of the folders below this one, without excluded ones and links."""
        return {path for path, item in self.scanned.items.items() if item.kind == FOLDER}

    def rescan(self, changed: Iterable[str] | None = None) -> list[str]:
        """Read changed paths again (None: everything); return those whose change matters to pods."""
        before = self.scanned
        self.scanned = (
            scan.scan(self.source, self.excludes)
            if changed is None
            else scan.rescan(self.source, self.excludes, before, changed)
        )
        differs = _differences(before, self.scanned)
        self.version += bool(differs)
        return differs

    def is_unknown(self, scanned: FolderScan, path: str) -> bool:
        """Return whether nothing is known about a path: excluded, or unreadable itself or through a folder above it."""
        return (
            scanned.is_unknown(path)
            or self.excludes.excludes_below(path, folder=False)
            or self.excludes.excludes_below(path, folder=True)
        )

    def hashes(self, paths: Iterable[str]) -> dict[str, str]:
        """SHA-256 of files; an unreadable one is missing here, and is reported when it is sent."""
        digests = {}
        for path in paths:
            item = self.scanned.items.get(path)
            if item is not None and (value := self._hash(path, item)):
                digests[path] = value
        return digests

    def _hash(self, path: str, item: Item) -> str:
        cached = self._hashes.get(path)
        if cached and cached[0] == item:
            return cached[1]
        try:
            with (self.source / path).open("rb") as stream:
                value = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:
            return ""
        if as_sent(item) == item:
            self._hashes[path] = item, value
        return value

    # ---- messages to pods -----------------------------------------------------------------------------------------

    def batch(self, files: Files) -> Batch:
        """Return small files as one message; built once, however many pods need it."""
        key = (self.version, files)
        with self._lock:
            batch = self._batches.get(key)
            if batch is None:
                batch = self._batches[key] = Future()
                is_first = True
            else:
                is_first = False
        if is_first:
            try:
                batch.set_result(self._pack(files))
            except BaseException as error:
                batch.set_exception(error)  # other threads wait for it
                raise
            self._make_room(len(batch.result().message))
        return batch.result()

    def _pack(self, files: Files) -> Batch:
        parts, sent, failed = [], {}, []
        for path, _ in files:
            try:
                item, value, content = self._read(path)
            except FileNotFoundError:
                continue  # just deleted: the next scan reports that
            except KeepsChanging:
                failed.append(Kept(path, KEEPS_CHANGING))
            except OSError as error:
                failed.append(Kept(path, f"cannot read it here: {error.strerror}"))
            else:
                sent_item = as_sent(item)
                head = {"path": path, "mode": sent_item.mode_in_pod, "source": sent_item.source, "value": value}
                parts.append(frames.whole(head, content))
                sent[path] = value, sent_item
        message = frames.raw(frames.PACK, zlib.compress(b"".join(parts), 1)) if parts else b""
        return Batch(message, sent, tuple(failed))

    def _make_room(self, size: int) -> None:
        with self._lock:
            self._size += size
            while self._size > CACHE_BYTES and len(self._batches) > 1:
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
        raise KeepsChanging(path)

    def large(self, path: str, sent: dict[str, tuple[str, Item]]) -> Iterator[bytes]:
        """Yield a large file as messages while it is read; `sent` then holds its hash and its times as sent.

        OSError if it cannot be read; `KeepsChanging` if it changes during every attempt.
        """
        for _ in range(TRIES):
            with (self.source / path).open("rb") as stream:
                before, digest, size = os.fstat(stream.fileno()), hashlib.sha256(), 0
                yield _begin(path, scan.item(FILE, before))
                # Stop at the initial size: a growing log has no end.
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
        raise KeepsChanging(path)


def _differences(before: FolderScan, after: FolderScan) -> list[str]:
    """Paths that changed, disappeared, or became unreadable or readable."""
    old = before.items
    paths = {path for path, item in after.items.items() if old.get(path) is not item and old.get(path) != item}
    paths |= old.keys() - after.items.keys()
    paths |= before.special - after.special
    readable = {path for path in paths if not after.is_unknown(path)}
    unread = {path or "." for path, _ in before.unread.items() ^ after.unread.items()}
    return sorted(readable | unread)


def _begin(path: str, item: Item) -> bytes:
    return frames.pack(frames.FILE, {"path": path, "mode": item.mode_in_pod, "source": as_sent(item).source})


def _end(value: str) -> bytes:
    return frames.pack(frames.END, {"value": value})


def as_sent(item: Item) -> Item:
    """The item with the times to record: a recently written file gets none that would prove it unchanged."""
    size, written, changed = item.source
    if time.time_ns() - max(written, changed) > RACY_NS:
        return item
    return replace(item, source=(size, written, 0))


def _same(before: os.stat_result, after: os.stat_result, size: int) -> bool:
    def stamp(info: os.stat_result) -> tuple[int, ...]:
        return info.st_size, info.st_mtime_ns, info.st_ctime_ns

    return stamp(before) == stamp(after) and after.st_size == size


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"
