"""feedback.log: feedback per version, with concurrent writers."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.paths import private

HEAD = re.compile(r"=== .*: (v\d+|none) (\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d ===")
ENTRY = re.compile(r"\[(\d\d:\d\d:\d\d)\] (.*)")
PREVIEW, USE = "New Preview Session", "In use"


@dataclass(frozen=True)
class Feedback:
    """One line of feedback; `version` and `date` are empty if no heading precedes it."""

    version: str
    date: str
    time: str
    text: str


def entries(lines: Iterable[str]) -> list[Feedback]:
    """Parse complete lines; a line in an unknown format is kept as it is."""
    version = date = ""
    parsed = []
    for line in lines:
        if head := HEAD.fullmatch(line):
            version, date = head[1], head[2]
        elif entry := ENTRY.fullmatch(line):
            parsed.append(Feedback(version, date, entry[1], entry[2]))
        elif line.strip():
            parsed.append(Feedback(version, date, "", line))
    return parsed


def add(log: Path, version: str, text: str) -> None:
    """Append feedback under a heading with its version and day."""
    message = one_line(text)
    now = time.localtime()
    entry = f"[{time.strftime('%H:%M:%S', now)}] {message}\n"

    def lines(before: str) -> str:
        heads = [head for line in before.split("\n") if (head := HEAD.fullmatch(line))]
        under = heads and (heads[-1][1], heads[-1][2]) == (version or "none", time.strftime("%Y-%m-%d", now))
        return entry if under else _head(USE, version, now) + entry

    _append(log, lines)


def begin(log: Path, version: str) -> None:
    """Append the heading of a preview."""
    _append(log, lambda _: _head(PREVIEW, version, time.localtime()))


def one_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _head(what: str, version: str, now: time.struct_time) -> str:
    return f"=== {what}: {version or 'none'} {time.strftime('%Y-%m-%d %H:%M:%S', now)} ===\n"


def _append(log: Path, lines: Callable[[str], str]) -> None:
    """Append in one write under a lock; the log may be rotated at any time."""
    private(log.parent)
    while True:
        descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is(descriptor, log):  # rotated while waiting
                continue
            before = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
            # An unfinished last line will not be continued.
            line_end = "" if not before or before.endswith("\n") else "\n"
            _write(descriptor, (line_end + lines(before)).encode(), log)
            return
        finally:
            os.close(descriptor)


def _write(descriptor: int, data: bytes, log: Path) -> None:
    """Append all of the data or, on a full disk, nothing."""
    before = os.fstat(descriptor).st_size
    try:
        complete = os.write(descriptor, data) == len(data)
    except OSError as error:
        error.filename = str(log)
        raise
    if not complete:
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(log))


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
