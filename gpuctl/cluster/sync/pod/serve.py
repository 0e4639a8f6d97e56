"""Receive a sync in a pod: answer requests and carry out commands until the input ends."""

# Names are bytes here, which pathlib does not have.
# ruff: noqa: PTH103
from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import sys
import time
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuctl.cluster.sync.pod import tree
from gpuctl.cluster.sync.pod.record import FolderLocked, Record
from gpuctl.cluster.sync.pod.write import Changed, Damaged, Writer, same
from gpuctl.remote.supervisor import frames

if TYPE_CHECKING:
    from collections.abc import Callable

SILENT_S = 600  # a sender that is gone closes our input; if that fails, the folder is released after this time
WATCHED_S = 120  # the same for a watching sender, which reports every 20 s
BEAT_S = 10  # heartbeat while an answer takes long
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Refused(Exception):
    """The request cannot be carried out; the text says why."""


class Server:
    """One sync into one folder."""

    def __init__(self, say: Callable[[bytes], object]) -> None:
        self.send = say
        self.root = b""
        self.record: Record | None = None
        self.writer: Any = None
        self.incoming: dict[str, Any] = {}  # the file being received
        self.wrong = ""  # the kind of its error
        self.full = ""
        self.files = self.bytes = 0
        self.answers: dict[int, Callable[[Any], dict[str, Any]]] = {
            frames.HELLO: self.hello,
            frames.LOOK: self.read_states,
            frames.CHECK: self.check,
            frames.SYNC: self.sync,
            frames.ALIVE: lambda _: {},
        }

    def take(self, kind: int, payload: bytes) -> None:
        """Process one message."""
        if kind in self.answers:
            self.send(frames.pack(frames.ANSWER, self.answers[kind](frames.unpack(payload))))
        elif kind == frames.DATA:
            self._guarded(self.incoming["path"], lambda: self.writer.data(payload))
        elif kind == frames.END:
            self._end(frames.unpack(payload))
        elif kind == frames.PACK:
            self._unpack(zlib.decompress(payload))
        elif kind == frames.WHOLE:
            head, _, content = payload.partition(b"\n")
            self._whole(json.loads(head), content)
        else:
            self._do(kind, frames.unpack(payload))

    # ---- requests -------------------------------------------------------------------------------------------------

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        """Lock the folder unless it is only read; return its state since the last sync."""
        self.root = os.path.realpath(request["target"].encode("utf-8", "surrogateescape"))
        self.record = record = Record(self.root)
        if request["check"]:
            self._may_write(request["target"])
            record.read()
            return self._state(record, {})
        try:
            os.makedirs(self.root, exist_ok=True)
            record.open(request["who"], request["session"])
            self.writer = Writer(self.root, record, record.number(request["source"]), request["force"])
        except FolderLocked as error:
            raise Refused(f"another sync writes there: {error}") from None
        except OSError as error:
            raise Refused(f"cannot write to {request['target']}: {error.strerror}") from None
        return self._state(record, self.writer.known)

    def _may_write(self, target: str) -> None:
        """Reading alone would not notice that the folder, or the one to create it in, belongs to somebody else."""
        at = Path(os.fsdecode(self.root))
        while not at.exists():
            at = at.parent
        if not os.access(at, os.W_OK | os.X_OK):
            raise Refused(f"cannot write to {target}: {os.strerror(errno.EACCES)}")

    def _state(self, record: Record, known_entries: dict[str, Any]) -> dict[str, Any]:
        deviations: dict[str, Any] = {}
        blocked_folders: dict[str, str] = {}
        for path, entry in record.entries.items():
            put = (entry["kind"], entry["value"], entry["mode"], entry["stamp"])
            state = tree.read_state(self.root, path, put, blocked_folders)
            if state is not None:
                known_entries[path] = state
            if state is None or state[:2] != put[:2]:
                deviations[path] = [*state[:3], same(entry, state)] if state else None
        entries = {
            path: [entry["kind"], entry["value"], entry["mode"], entry["source"], entry["by"], entry["put"]]
            for path, entry in record.entries.items()
        }
        return {
            "sources": record.sources,
            "generation": record.generation,
            "entries": entries,
            "deviations": deviations,
        }

    def read_states(self, paths: Any) -> dict[str, Any]:
        """Return the entries at paths that no sync knows."""
        states = {}
        for path in paths:
            state = self.writer.read_state(path) if self.writer else tree.read_state(self.root, path)
            if state is not None:
                states[path] = list(state[:3])
        return states

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return this pod's generation, and the given paths whose content differs here."""
        root = os.path.realpath(request["target"].encode("utf-8", "surrogateescape"))
        record = Record(root)
        record.read()
        differs = [path for path, expected in request["paths"].items() if _content(root, path) != tuple(expected)]
        return {"generation": record.generation, "differs": differs}

    def sync(self, _: Any) -> dict[str, Any]:
        """Confirm that everything sent is done, or was reported as an error."""
        if self.record is None:
            raise Refused("the sync was not started")
        generation = self.record.settle(self.writer.unsaved)
        self.writer.settled()
        done = {"generation": generation, "files": self.files, "bytes": self.bytes}
        self.files = self.bytes = 0
        self.full = ""
        return done

    # ---- commands -------------------------------------------------------------------------------------------------

    def _do(self, kind: int, entry: Any) -> None:
        tree.beat()  # thousands of deletes in a row may take long
        self.incoming, self.wrong = entry, ""
        path = entry["path"]
        work: dict[int, Callable[[], object]] = {
            frames.FILE: lambda: self.writer.begin(),  # noqa: PLW0108 - there is no writer where it was only looked
            frames.LINK: lambda: self.writer.link(entry),
            frames.FOLDER: lambda: self.writer.folder(entry),
            frames.NOTE: lambda: self.writer.note(entry),
            frames.DELETE: lambda: None if self.writer.delete(path) else self._trouble(path, "stays", ""),
            frames.FORGET: lambda: self.writer.forget(path),
        }
        if kind not in (frames.DELETE, frames.FORGET) and self.full:
            self._trouble(path, "full", self.full)
            return
        self._guarded(path, work[kind])

    def _unpack(self, messages: bytes) -> None:
        reader = frames.Reader(iter([messages, b""]).__next__)
        with contextlib.suppress(EOFError):
            while True:
                self.take(*reader.next())

    def _whole(self, entry: dict[str, Any], content: bytes) -> None:
        self.incoming, self.wrong = entry, ""
        if self.full:
            self._trouble(entry["path"], "full", self.full)
            return
        self._guarded(entry["path"], lambda: self._count(self.writer.whole(entry, content)))
        self.writer.abort()

    def _end(self, trailer: dict[str, Any]) -> None:
        if not self.wrong and trailer["value"]:
            self._guarded(self.incoming["path"], lambda: self._count(self.writer.end(self.incoming, trailer["value"])))
        self.writer.abort()

    def _count(self, size: int) -> None:
        self.files, self.bytes = self.files + 1, self.bytes + size

    def _guarded(self, path: str, work: Callable[[], object]) -> None:
        """Do the work; an error of one path is reported and does not affect others."""
        if self.wrong:
            return
        try:
            work()
        except Changed as error:
            self._trouble(path, "changed", str(error))
        except Damaged as error:
            self._trouble(path, "damaged", str(error))
        except OSError as error:
            why, full = error.strerror or str(error), error.errno in FULL
            self.full = self.full or (why if full else "")
            self._trouble(path, "full" if full else "failed", why)
            self.writer.abort()

    def _trouble(self, path: str, word: str, wrong: str) -> None:
        self.wrong = self.wrong or word
        self.send(frames.pack(frames.TROUBLE, {"path": path, "word": word, "wrong": wrong}))


def _content(root: bytes, path: str) -> Any:
    entry = tree.read_state(root, path)
    return entry[:2] if entry else None


class _Reader:
    """Reads our input. A sender that is silent for `silent_s` is gone."""

    def __init__(self) -> None:
        self.silent_s = SILENT_S

    def more(self) -> bytes:
        """The next bytes."""
        ready, _, _ = select.select([0], [], [], self.silent_s)
        return os.read(0, 1 << 18) if ready else b""


class _Writer:
    """Sends messages, and heartbeats while an answer takes long."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        tree.beat = self.beat

    def send(self, message: bytes) -> None:
        sys.stdout.buffer.write(message)
        sys.stdout.buffer.flush()

    def beat(self) -> None:
        if time.monotonic() - self.last > BEAT_S:
            self.last = time.monotonic()
            self.send(frames.raw(frames.WORKING, b""))


def main() -> int:
    """Serve until the input ends; refusals are answered, and our own faults go to standard error."""
    os.umask(0o002)  # pods of both modes share a group, not a user
    writer, reader = _Writer(), _Reader()
    messages, server = frames.Reader(reader.more), Server(writer.send)
    try:
        writer.send(frames.MAGIC)
        while True:
            kind, payload = messages.next()
            reader.silent_s = WATCHED_S if kind == frames.ALIVE else reader.silent_s
            server.take(kind, payload)
    except (EOFError, BrokenPipeError):
        return 0
    except Refused as error:
        writer.send(frames.pack(frames.TROUBLE, {"path": "", "word": "refused", "wrong": str(error)}))
        return 2
    except Exception:  # noqa: BLE001 - the last word of a program that runs elsewhere
        traceback.print_exc()
        return 1
    finally:
        if server.writer:
            server.writer.abort()
