"""Manifest of the files that were synced into a folder, stored in that folder: it decides deletes and conflicts.

One line per change, the last one counts; written before the change is made, so that an interrupted sync leaves a true
manifest. Rewritten atomically once it has grown long.
"""

# Names are bytes here, which pathlib does not have.
# ruff: noqa: PTH103, PTH104, PTH118, PTH123, SIM115
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any

from gpuctl.cluster.sync.pod import tree

LOCK_S = 5.0
OUR_PROGRAM = b"gpuctl-old-python"  # part of the command line of our programs in pods
if TYPE_CHECKING:
    # kind, value (hash, or target of a link), mode, source (size and times of the source file), by (number of the
    # source folder), put (written by a sync, rather than found identical), stamp (None: uncertain), was (the value
    # before: after an interruption, either may be present)
    Entry = dict[str, Any]


class FolderLocked(Exception):
    """Another sync is writing there; the text names its owner."""


class Record:
    """The manifest of one folder."""

    def __init__(self, root: bytes) -> None:
        self.folder = os.path.join(root, tree.OURS.encode())
        self.path = os.path.join(self.folder, b"manifest")
        self.entries: dict[str, Entry] = {}
        self.sources: list[str] = []
        self.generation = ""
        self.lines = 0
        self._lock: Any = None
        self._log: Any = None

    def read(self) -> None:
        """Read the manifest. A truncated last line is ignored."""
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as stream:
            for line in stream:
                with contextlib.suppress(ValueError):
                    self._take(json.loads(line.decode()))

    def _take(self, line: Any) -> None:
        self.lines += 1
        if isinstance(line, dict):
            self.sources, self.generation = line["sources"], line["generation"]
        elif line[1] is None:
            self.entries.pop(line[0], None)
        else:
            self.entries[line[0]] = line[1]

    def open(self, who: str, session: str = "") -> None:
        """Lock the folder and open the manifest for writing; `FolderLocked` if somebody else has it.

        An earlier connection of the same `session` in this pod is ended: it may not have noticed yet that it broke.
        """
        os.makedirs(self.folder, exist_ok=True)
        self._lock = open(os.path.join(self.folder, b"lock"), "a+")
        self._take_lock(session)
        self._lock.truncate(0)
        self._lock.write(f"{who}\n{session} {os.uname().nodename} {os.getpid()}")
        self._lock.flush()
        self.read()
        self._log = open(self.path, "ab")
        if self._log.tell():
            self._log.write(b"\n")  # after a line that may be truncated

    def _take_lock(self, session: str) -> None:
        end = time.monotonic() + LOCK_S
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.seek(0)
                who, _, holder = self._lock.read().partition("\n")
                if session:
                    _end(holder, session)
                if time.monotonic() > end:
                    raise FolderLocked(who or "somebody") from None
            except OSError:  # a file system without locks
                return None
            time.sleep(0.1)

    def number(self, source: str) -> int:
        """The number of a source folder."""
        if source not in self.sources:
            self.sources.append(source)
            self._write(self._head())
        return self.sources.index(source)

    def note(self, path: str, entry: Entry | None) -> None:
        """Record a path, or (None) that it is not ours."""
        if entry is None:
            self.entries.pop(path, None)
        else:
            self.entries[path] = entry
        self._write([path, entry])
        self._log.flush()

    def settle(self, unsaved: list[str]) -> str:
        """All changes are done: set a new generation, which other pods that share the folder can check."""
        self.generation = secrets.token_hex(8)
        if self.lines + len(unsaved) > 2 * len(self.entries) + 200:
            self._rewrite()
        else:
            for path in unsaved:
                self._write([path, self.entries.get(path)])
            self._write(self._head())
            self._log.flush()
        # No fsync, which would flush all files: if the node crashes, the manifest may be lost, and then every file is
        # kept.
        return self.generation

    def _head(self) -> dict[str, Any]:
        return {"form": 1, "sources": self.sources, "generation": self.generation}

    def _write(self, line: Any) -> None:
        self.lines += 1
        self._log.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _rewrite(self) -> None:
        log, new = self._log, self.path + b".new"
        self._log = open(new, "wb")
        self.lines = 0
        try:
            self._write(self._head())
            for path, entry in self.entries.items():
                self._write([path, entry])
            self._log.flush()
            os.rename(new, self.path)
        except OSError:  # the long manifest stays, and is equally true
            self._log, new_log = log, self._log
            with contextlib.suppress(OSError):
                new_log.close()
            return
        log.close()


def _end(holder: str, session: str) -> None:
    """End the holder of a folder if it is our program in this pod, of this session."""
    whose, _, rest = holder.partition(" ")
    name, _, pid = rest.partition(" ")
    if whose == session and name == os.uname().nodename and pid.isdigit():
        with contextlib.suppress(OSError):
            if OUR_PROGRAM in open(f"/proc/{pid}/cmdline", "rb").read():  # and not another process that reused its pid
                os.kill(int(pid), signal.SIGTERM)
