"""The record of what was synced into a folder, kept in that folder: deletes and conflicts are decided by it.

One line a change, the last one counts; written before the change is made, so that a sync that is cut off anywhere
leaves a record that is true. It is written anew, whole or not at all, once it has grown long.
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
OURS_SAYS = b"gpuctl-old-python"  # in the command line of our programs in pods
if TYPE_CHECKING:
    # kind, value (hash, or where a link leads), mode, source (size and times of the file it came from), by (number of
    # the folder it came from), put (whether a sync wrote it, or found it there the same), stamp (None: not known for
    # sure), was (the value it had until then: after a cut, either may be there)
    Entry = dict[str, Any]


class Held(Exception):
    """Another sync is writing there; the text says whose."""


class Record:
    """The record of one folder."""

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
        """Take in what is there. A last line that was cut off says nothing."""
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
        """Take the folder for ourselves and begin to write; `Held` where somebody else has it.

        What an earlier connection of the same `session` left in this pod is ended: it may not know yet that it broke.
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
            self._log.write(b"\n")  # after a line that may have been cut off

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
                    raise Held(who or "somebody") from None
            except OSError:  # a file system without locks
                return None
            time.sleep(0.1)

    def number(self, source: str) -> int:
        """The number that stands for a folder that files come from."""
        if source not in self.sources:
            self.sources.append(source)
            self._write(self._head())
        return self.sources.index(source)

    def note(self, path: str, entry: Entry | None) -> None:
        """Say how a path stands, or (None) that it is none of ours."""
        if entry is None:
            self.entries.pop(path, None)
        else:
            self.entries[path] = entry
        self._write([path, entry])
        self._log.flush()

    def settle(self, unsaved: list[str]) -> str:
        """All of it is done: give it a new generation, which other pods that share the folder can look for."""
        self.generation = secrets.token_hex(8)
        if self.lines + len(unsaved) > 2 * len(self.entries) + 200:
            self._write_anew()
        else:
            for path in unsaved:
                self._write([path, self.entries.get(path)])
            self._write(self._head())
            self._log.flush()
        # Not forced to the disk, which would take all files along: a node that crashes may lose the record, and then
        # everything is kept.
        return self.generation

    def _head(self) -> dict[str, Any]:
        return {"form": 1, "sources": self.sources, "generation": self.generation}

    def _write(self, line: Any) -> None:
        self.lines += 1
        self._log.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _write_anew(self) -> None:
        log, new = self._log, self.path + b".new"
        self._log = open(new, "wb")
        self.lines = 0
        try:
            self._write(self._head())
            for path, entry in self.entries.items():
                self._write([path, entry])
            self._log.flush()
            os.rename(new, self.path)
        except OSError:  # the long one stays, and is as true
            self._log, new_log = log, self._log
            with contextlib.suppress(OSError):
                new_log.close()
            return
        log.close()


def _end(holder: str, session: str) -> None:
    """End who holds a folder, where that is a program of ours in this pod, of this session."""
    whose, _, rest = holder.partition(" ")
    name, _, pid = rest.partition(" ")
    if whose == session and name == os.uname().nodename and pid.isdigit():
        with contextlib.suppress(OSError):
            if OURS_SAYS in open(f"/proc/{pid}/cmdline", "rb").read():  # and no other that has its number by now
                os.kill(int(pid), signal.SIGTERM)
