"""Measure how fast files below a path can be read, within seconds and bytes, and past the page cache if possible.

Only regular files below the path are opened, on its file system alone, and links are not followed. Nothing is written:
files are opened with O_NOATIME where the user may do that.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    # Begins a measurement; the function that it returns gives the rises since then.
    Meter = Callable[[], Callable[[], Mapping[str, Any]]]

MOST_ENTRIES, LIST_S = 2000, 3.0  # of the walk over the folder
LARGEST, SMALL = 8, 1 << 20  # files to read from; below this size in bytes, a file is read as a whole
SMALL_FILES = 200
SEQUENTIAL, RANDOM = 1 << 20, 4096  # bytes of a read
STREAMS = 8
SAMPLES = 64  # pages whose presence in the cache is looked up
YOUNG_S = 600  # files changed within these seconds may still be written, and are left out


class Phase(NamedTuple):
    """A kind of read. `seconds` and `bytes` are its shares of the limits."""

    name: str
    streams: int
    block: int
    seconds: float
    bytes: float
    is_random: bool = False


PHASES = (
    Phase("sequential", 1, SEQUENTIAL, 0.25, 0.3),
    Phase("sequential, streams", STREAMS, SEQUENTIAL, 0.25, 0.5),
    Phase("random", 1, RANDOM, 0.2, 0.05, is_random=True),
    Phase("random, streams", STREAMS * 2, RANDOM, 0.2, 0.15, is_random=True),
)


class File(NamedTuple):
    """A file to read from."""

    path: str
    size: int


def read(
    path: str,
    limit_s: float,
    limit_bytes: int,
    meter: Meter = lambda: dict,
    written: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """{entries, list_s, is_direct, file_bytes, cached_percent, phases, small}; OSError if the path cannot be read.

    `is_direct`: False if the file system refuses O_DIRECT, so that the page cache may have answered; None if no file is
    large enough. `small`: {files, bytes, seconds} of opening and reading whole small files; None without them.
    Each phase and `small` have the values of `meter`, too. `written`: files to leave out, as somebody writes them.
    """
    began = time.monotonic()
    entries, files = _files(path)
    files = [file for file in files if file.path not in written]
    answer: dict[str, Any] = {"entries": entries, "list_s": round(time.monotonic() - began, 4)}
    large = sorted((file for file in files if file.size >= SMALL), key=lambda file: -file.size)
    answer.update(is_direct=None, file_bytes=0, cached_percent=None, phases=[])
    if large:
        answer.update(_large(large, limit_s, limit_bytes * 7 // 8, meter))
    small = [file for file in files if 0 < file.size < SMALL]
    answer["small"] = _small(small, limit_s * 0.1, limit_bytes // 8, meter) if small else None
    return answer


def _files(path: str) -> tuple[int, list[File]]:
    """Number of entries, and the regular files; a path of a file is that file."""
    facts = os.stat(path)
    if stat.S_ISREG(facts.st_mode):
        return 1, [File(path, facts.st_size)] if _is_at_rest(facts) else []
    if not stat.S_ISDIR(facts.st_mode):
        raise OSError(errno.EINVAL, "neither a folder nor a regular file", path)
    return _walk(path, facts.st_dev)


def _walk(path: str, device: int) -> tuple[int, list[File]]:
    """Entries and regular files of a folder, level by level; folders below it that cannot be listed are left out."""
    files: list[File] = []
    entries, folders, end = 0, [path], time.monotonic() + LIST_S
    while folders:
        folder = folders.pop(0)
        try:
            listing = os.scandir(folder)
        except OSError:
            if folder == path:
                raise
            continue
        with listing:
            for entry in listing:
                if entries >= MOST_ENTRIES or time.monotonic() > end:
                    return entries, files
                entries += 1
                file = _entry(entry, device, folders)
                files += [file] if file else []
    return entries, files


def _entry(entry: os.DirEntry[str], device: int, folders: list[str]) -> File | None:
    """The file of an entry, None if it is none to read; a folder is added to `folders`."""
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:  # it was removed meanwhile
        return None
    if stat.S_ISDIR(facts.st_mode) and facts.st_dev == device:
        folders.append(entry.path)
    return File(entry.path, facts.st_size) if stat.S_ISREG(facts.st_mode) and _is_at_rest(facts) else None


def _is_at_rest(facts: os.stat_result) -> bool:
    """True if a file has its data here, not holes or a copy in an archive, and was not changed in the last minutes."""
    return facts.st_blocks * 2048 >= facts.st_size and not 0 <= time.time() - facts.st_mtime < YOUNG_S


def _open(path: str, flags: int = 0) -> int:
    """A descriptor for reading; the time of the last access stays as it is, if the user owns the file."""
    usual = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | flags
    try:
        return os.open(path, usual | os.O_NOATIME)
    except PermissionError:
        return os.open(path, usual)


def _large(candidates: list[File], limit_s: float, limit_bytes: int, meter: Meter) -> dict[str, Any]:
    files, descriptors = _opened(candidates)
    try:
        cached = _cached_percent(descriptors[0], files[0].size)
        is_direct = all(map(_is_direct, descriptors))
        if not is_direct:
            for descriptor in descriptors:
                _set_direct(descriptor, on=False)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        phases = []
        for phase in PHASES:
            rise = meter()
            phases.append({**_phase(phase, files, descriptors, limit_s, limit_bytes), **rise()})
    finally:
        _close(descriptors)
    total = sum(file.size for file in files)
    return {"is_direct": is_direct, "file_bytes": total, "cached_percent": cached, "phases": phases}


def _opened(candidates: list[File]) -> tuple[list[File], list[int]]:
    """The first files that can be opened, which stay open; the error of the first candidate if none can."""
    files: list[File] = []
    descriptors: list[int] = []
    first: OSError | None = None
    for file in candidates:
        try:
            descriptors.append(_open(file.path))
        except OSError as error:  # it was removed, or belongs to somebody else
            first = first or error
            continue
        files.append(file)
        if len(files) == LARGEST:
            break
    if first and not files:
        raise first
    return files, descriptors


def _is_direct(descriptor: int) -> bool:
    """Switch a file to O_DIRECT, and read a page of it; False if the file system refuses either."""
    try:
        _set_direct(descriptor, on=True)
        os.preadv(descriptor, [mmap.mmap(-1, RANDOM)], 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ESTALE):  # a stale file ends its streams later
            raise
        return error.errno == errno.ESTALE
    return True


def _set_direct(descriptor: int, *, on: bool) -> None:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _cached_percent(descriptor: int, size: int) -> int | None:
    """Share of a file that is in the page cache, by a sample; None if the file system does not tell."""
    hits, buffer = 0, mmap.mmap(-1, RANDOM)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        for number in range(SAMPLES):
            try:
                os.preadv(descriptor, [buffer], size * number // SAMPLES // RANDOM * RANDOM, os.RWF_NOWAIT)
                hits += 1
            except BlockingIOError:
                pass
    except OSError:  # EOPNOTSUPP
        return None
    return round(100 * hits / SAMPLES)


class _Reads:
    """What the streams of a phase have read."""

    def __init__(self, limit_bytes: float, end: float) -> None:
        self._lock = threading.Lock()
        self._left, self._end = limit_bytes, end
        self.times: list[float] = []
        self.bytes = 0
        self.error: OSError | None = None
        self.stale: OSError | None = None

    def stream(self, descriptor: int, offsets: Iterator[int], block: int) -> None:
        buffer = mmap.mmap(-1, block)
        for offset in offsets:
            with self._lock:
                if self._left < block or time.monotonic() >= self._end or self.error:
                    return
                self._left -= block
            began = time.monotonic()
            try:
                count = os.preadv(descriptor, [buffer], offset)
            except OSError as error:
                if error.errno == errno.ESTALE:  # the server has removed the file; others are read
                    self.stale = error
                else:
                    self.error = error
                return
            with self._lock:
                self.times.append(time.monotonic() - began)
                self.bytes += count


def _phase(phase: Phase, files: list[File], descriptors: list[int], limit_s: float, limit_bytes: int) -> dict[str, Any]:
    began = time.monotonic()
    reads = _Reads(phase.bytes * limit_bytes, began + phase.seconds * limit_s)
    streams = [_stream(phase, number, files, descriptors, reads) for number in range(phase.streams)]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    if error := reads.error or (reads.stale if not reads.times else None):
        raise error
    times = sorted(reads.times)
    return {
        "name": phase.name,
        "streams": phase.streams,
        "block_bytes": phase.block,
        "reads": len(times),
        "bytes": reads.bytes,
        "seconds": round(time.monotonic() - began, 6),
        "median_ms": round(times[len(times) // 2] * 1000, 3) if times else None,
        "slowest_ms": round(times[-1] * 1000, 3) if times else None,
    }


def _stream(phase: Phase, number: int, files: list[File], descriptors: list[int], reads: _Reads) -> threading.Thread:
    """A stream in a part of a file that no other stream of the phase reads."""
    at = number % len(files)
    parts = max(1, min(-(-phase.streams // len(files)), files[at].size // phase.block))
    part = number // len(files)
    size = files[at].size // parts // phase.block if part < parts else 0
    first = size * part
    offsets = _random(first, size, phase.block) if phase.is_random else _in_order(first, size, phase.block)
    return threading.Thread(target=reads.stream, args=(descriptors[at], offsets, phase.block), daemon=True)


def _random(first: int, size: int, block: int) -> Iterator[int]:
    while size:
        yield (first + random.randrange(size)) * block  # noqa: S311 - a place in a file is no secret


def _in_order(first: int, size: int, block: int) -> Iterator[int]:
    """Blocks of a part, once, from a random one on: a server may have cached its beginning for the last trial."""
    begin = random.randrange(size) if size else 0  # noqa: S311
    for number in range(size):
        yield (first + (begin + number) % size) * block


def _small(files: list[File], limit_s: float, limit_bytes: int, meter: Meter) -> dict[str, Any] | None:
    """Open, read and close whole files, one after the other, as a data loader does."""
    chosen = random.sample(files, min(SMALL_FILES, len(files)))
    rise = meter()
    count, total, began = 0, 0, time.monotonic()
    for file in chosen:
        if time.monotonic() - began > limit_s or total + file.size > limit_bytes:
            break
        try:
            descriptor = _open(file.path)
        except OSError:
            continue
        try:
            total += len(os.read(descriptor, file.size))
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            continue
        finally:
            os.close(descriptor)
        count += 1
    values = {"files": count, "bytes": total, "seconds": round(time.monotonic() - began, 6)}
    return {**values, **rise()} if count else None
