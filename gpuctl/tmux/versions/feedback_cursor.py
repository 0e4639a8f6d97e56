"""Read what is new in feedback.log, even if it was rotated, truncated or is being written."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.paths import write_atomically
from gpuctl.tmux.versions.feedback import Feedback, entries

CURSOR_FILE = ".last-read-line"


@dataclass(frozen=True)
class Cursor:
    """The position read so far: lines, bytes, and a hash of these bytes to recognise the log."""

    line: int = 0
    byte: int = 0
    sha256: str = hashlib.sha256().hexdigest()

    def is_in(self, data: bytes) -> bool:
        return len(data) >= self.byte and hashlib.sha256(data[: self.byte]).hexdigest() == self.sha256


def parse_cursor(text: str) -> Cursor:
    """Parse .last-read-line; unreadable text means the beginning, as repeating is better than losing."""
    try:
        line, byte, sha256 = text.split()
        return Cursor(int(line), int(byte), sha256)
    except ValueError:
        return Cursor()


def unread(log: bytes, older: list[bytes], last: Cursor) -> tuple[list[Feedback], Cursor]:
    """Return the feedback after a position, and the new position; `older`: rotated logs, newest first."""
    whole = log[: log.rfind(b"\n") + 1]  # an unfinished line is still being written
    now = Cursor(whole.count(b"\n"), len(whole), hashlib.sha256(whole).hexdigest())
    if last.is_in(whole):
        return _after(whole, last.line), now
    rotated: list[Feedback] = []
    for number, data in enumerate(older):
        if last.byte and last.is_in(data):
            for data_of_log in reversed(older[:number]):
                rotated += _after(data_of_log, 0)
            return [*_after(data, last.line), *rotated, *_after(whole, 0)], now
    return _after(whole, 0), now


def _after(data: bytes, line: int) -> list[Feedback]:
    """Return the feedback after a line, with version and date from the headings before it."""
    lines = data.decode(errors="replace").split("\n")
    return entries(lines)[len(entries(lines[:line])) :]


@contextmanager
def taken(log: Path) -> Iterator[list[Feedback]]:
    """Provide the new feedback; it counts as read if the block ends without error. One reader at a time."""
    if not log.parent.is_dir():
        yield []
        return
    cursor_path = log.with_name(CURSOR_FILE)
    with log.with_name(f"{CURSOR_FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        last = parse_cursor(cursor_path.read_text(errors="replace") if cursor_path.is_file() else "")
        rotated = [path for path in log.parent.glob(f"{log.name}.*") if path.is_file()]
        older = [p.read_bytes() for p in sorted(rotated, key=lambda path: path.stat().st_mtime, reverse=True)]
        fresh, now = unread(log.read_bytes() if log.is_file() else b"", older, last)
        yield fresh
        if now != last:
            write_atomically(cursor_path, f"{now.line} {now.byte} {now.sha256}\n")
