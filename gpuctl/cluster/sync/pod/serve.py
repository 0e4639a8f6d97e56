"""Takes a sync in a pod: answers what it is asked and does what it is told, until its input ends."""

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
from gpuctl.cluster.sync.pod.record import Held, Record
from gpuctl.cluster.sync.pod.write import Changed, Damaged, Writer, same
from gpuctl.remote.supervisor import frames

if TYPE_CHECKING:
    from collections.abc import Callable

SILENT_S = 600  # a sender that is gone closes our input; should that fail, the folder is free again after so long
WATCHED_S = 120  # the same of one that watches, and says every 20 s that it is there
BEAT_S = 10  # while an answer takes long
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Refused(Exception):
    """What was asked for cannot begin; the text says why."""


class Server:
    """One sync into one folder."""

    def __init__(self, say: Callable[[bytes], object]) -> None:
        self.say = say
        self.root = b""
        self.record: Record | None = None
        self.writer: Any = None
        self.told: dict[str, Any] = {}  # the file that comes in
        self.wrong = ""  # what went wrong with it
        self.full = ""
        self.files = self.bytes = 0
        self.answers: dict[int, Callable[[Any], dict[str, Any]]] = {
            frames.HELLO: self.hello,
            frames.LOOK: self.look,
            frames.CHECK: self.check,
            frames.SYNC: self.sync,
            frames.ALIVE: lambda _: {},
        }

    def take(self, kind: int, payload: bytes) -> None:
        """One message."""
        if kind in self.answers:
            self.say(frames.pack(frames.ANSWER, self.answers[kind](frames.unpack(payload))))
        elif kind == frames.DATA:
            self._guarded(self.told["path"], lambda: self.writer.data(payload))
        elif kind == frames.END:
            self._end(frames.unpack(payload))
        elif kind == frames.PACK:
            self._unpack(zlib.decompress(payload))
        elif kind == frames.WHOLE:
            head, _, content = payload.partition(b"\n")
            self._whole(json.loads(head), content)
        else:
            self._do(kind, frames.unpack(payload))

    # ---- questions ------------------------------------------------------------------------------------------------

    def hello(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Take the folder, unless it is only to be looked at; say what an earlier sync left and what became of it."""
        self.root = os.path.realpath(asked["target"].encode("utf-8", "surrogateescape"))
        self.record = record = Record(self.root)
        if asked["check"]:
            self._may_write(asked["target"])
            record.read()
            return self._stands(record, {})
        try:
            os.makedirs(self.root, exist_ok=True)
            record.open(asked["who"], asked["session"])
            self.writer = Writer(self.root, record, record.number(asked["source"]), asked["force"])
        except Held as error:
            raise Refused(f"another sync writes there: {error}") from None
        except OSError as error:
            raise Refused(f"cannot write to {asked['target']}: {error.strerror}") from None
        return self._stands(record, self.writer.known)

    def _may_write(self, target: str) -> None:
        """A look alone would not notice that the folder, or the one it is to be made in, is somebody else's."""
        at = Path(os.fsdecode(self.root))
        while not at.exists():
            at = at.parent
        if not os.access(at, os.W_OK | os.X_OK):
            raise Refused(f"cannot write to {target}: {os.strerror(errno.EACCES)}")

    def _stands(self, record: Record, known: dict[str, Any]) -> dict[str, Any]:
        now: dict[str, Any] = {}
        ways: dict[str, str] = {}
        for path, entry in record.entries.items():
            put = (entry["kind"], entry["value"], entry["mode"], entry["stamp"])
            found = tree.look(self.root, path, put, ways)
            if found is not None:
                known[path] = found
            if found is None or found[:2] != put[:2]:
                now[path] = [*found[:3], same(entry, found)] if found else None
        entries = {
            path: [each["kind"], each["value"], each["mode"], each["source"], each["by"], each["put"]]
            for path, each in record.entries.items()
        }
        return {"sources": record.sources, "generation": record.generation, "entries": entries, "now": now}

    def look(self, paths: Any) -> dict[str, Any]:
        """What is at paths that no sync knows."""
        found = {}
        for path in paths:
            state = self.writer.look(path) if self.writer else tree.look(self.root, path)
            if state is not None:
                found[path] = list(state[:3])
        return found

    def check(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Whether this pod sees what another pod was given: which generation, and which of these paths differ."""
        root = os.path.realpath(asked["target"].encode("utf-8", "surrogateescape"))
        record = Record(root)
        record.read()
        differs = [path for path, wanted in asked["paths"].items() if _seen(root, path) != tuple(wanted)]
        return {"generation": record.generation, "differs": differs}

    def sync(self, _: Any) -> dict[str, Any]:
        """All that was sent is done, or told as trouble."""
        if self.record is None:
            raise Refused("it was not begun")
        generation = self.record.settle(self.writer.unsaved)
        self.writer.settled()
        done = {"generation": generation, "files": self.files, "bytes": self.bytes}
        self.files = self.bytes = 0
        self.full = ""
        return done

    # ---- work -----------------------------------------------------------------------------------------------------

    def _do(self, kind: int, told: Any) -> None:
        tree.beat()  # thousands of deletes in a row may take long
        self.told, self.wrong = told, ""
        path = told["path"]
        work: dict[int, Callable[[], object]] = {
            frames.FILE: lambda: self.writer.begin(),  # noqa: PLW0108 - there is no writer where it was only looked
            frames.LINK: lambda: self.writer.link(told),
            frames.FOLDER: lambda: self.writer.folder(told),
            frames.NOTE: lambda: self.writer.note(told),
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

    def _whole(self, told: dict[str, Any], content: bytes) -> None:
        self.told, self.wrong = told, ""
        if self.full:
            self._trouble(told["path"], "full", self.full)
            return
        self._guarded(told["path"], lambda: self._count(self.writer.whole(told, content)))
        self.writer.abort()

    def _end(self, told: dict[str, Any]) -> None:
        if not self.wrong and told["value"]:
            self._guarded(self.told["path"], lambda: self._count(self.writer.end(self.told, told["value"])))
        self.writer.abort()

    def _count(self, size: int) -> None:
        self.files, self.bytes = self.files + 1, self.bytes + size

    def _guarded(self, path: str, work: Callable[[], object]) -> None:
        """Do it; what goes wrong with one path is told, and stops no other."""
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
        self.say(frames.pack(frames.TROUBLE, {"path": path, "word": word, "wrong": wrong}))


def _seen(root: bytes, path: str) -> Any:
    found = tree.look(root, path)
    return found[:2] if found else None


class _Ear:
    """Hears our input. A sender that has nothing to say for `silent_s` is gone."""

    def __init__(self) -> None:
        self.silent_s = SILENT_S

    def more(self) -> bytes:
        """The next bytes."""
        ready, _, _ = select.select([0], [], [], self.silent_s)
        return os.read(0, 1 << 18) if ready else b""


class _Voice:
    """Says messages, and, while an answer takes long, that we are at work."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        tree.beat = self.beat

    def say(self, message: bytes) -> None:
        sys.stdout.buffer.write(message)
        sys.stdout.buffer.flush()

    def beat(self) -> None:
        if time.monotonic() - self.last > BEAT_S:
            self.last = time.monotonic()
            self.say(frames.raw(frames.WORKING, b""))


def main() -> int:
    """Serve until the input ends; what is refused is answered, and what is our own fault goes to standard error."""
    voice, ear = _Voice(), _Ear()
    reader, server = frames.Reader(ear.more), Server(voice.say)
    try:
        voice.say(frames.MAGIC)
        while True:
            kind, payload = reader.next()
            ear.silent_s = WATCHED_S if kind == frames.ALIVE else ear.silent_s
            server.take(kind, payload)
    except (EOFError, BrokenPipeError):
        return 0
    except Refused as error:
        voice.say(frames.pack(frames.TROUBLE, {"path": "", "word": "refused", "wrong": str(error)}))
        return 2
    except Exception:  # noqa: BLE001 - the last word of a program that runs elsewhere
        traceback.print_exc()
        return 1
    finally:
        if server.writer:
            server.writer.abort()
