"""The talk with one pod: a program of ours runs there, takes messages and answers them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.sync.model import Entry, Kept, Seen, There
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command, Program
from gpuctl.remote import packing
from gpuctl.remote.connection import why_ended
from gpuctl.remote.supervisor import frames

# Each imports only those before it; the `main` of the last one is run.
RECEIVER = (
    "gpuctl.remote.supervisor.frames",
    *(f"gpuctl.cluster.sync.pod.{name}" for name in ("tree", "record", "write", "serve")),
)
AT_ONCE = 1 << 17  # bytes that wait to be sent together
SILENT_S = 60.0  # a pod at work says so every 10 s


class Refused(GpuctlError):
    """The pod cannot take this sync as it is: another one writes there, or the folder cannot be written."""


class PodStream:
    """An open stream to one pod, whose `python` runs our program.

    What goes wrong with single paths there is collected in `troubles`, by what it is.
    """

    def __init__(self, started: Program, pod: str, python: str) -> None:
        self.pod, self.doing = pod, f"sync to the pod {pod}"
        self.troubles: list[tuple[str, Kept]] = []
        self._program, self._python = started, python
        self._waiting = bytearray(packing.packed(RECEIVER))
        self._messages = frames.Reader(self._more)
        self._greeted = False

    def close(self) -> None:
        self._program.close()

    # ---- questions ------------------------------------------------------------------------------------------------

    def hello(self, target: str, source: str, who: str, **how: Any) -> Seen:
        """Begin: the pod takes the folder for us (with `check` it only looks) and says how it stands.

        `how`: force, check, session; a connection of the same session that broke has to give the folder up.
        """
        asked = {"target": target, "source": source, "who": who, "force": False, "check": False, "session": "", **how}
        answer = self.ask(frames.HELLO, asked)
        entries = {path: _entry(row, answer["sources"]) for path, row in answer["entries"].items()}
        now = {path: None if row is None else There(row[0], row[1], row[3]) for path, row in answer["now"].items()}
        return Seen(entries, now, {}, answer["generation"])

    def look(self, paths: list[str]) -> Mapping[str, There]:
        """What the pod has at these paths."""
        return {path: There(row[0], row[1]) for path, row in self.ask(frames.LOOK, paths).items()}

    def sync(self) -> Mapping[str, Any]:
        """Wait until all that was told is done: the number of files and bytes written."""
        answer: Mapping[str, Any] = self.ask(frames.SYNC, {})
        return answer

    def alive(self) -> None:
        """Hear from it; `Unreachable` where it is gone."""
        self.ask(frames.ALIVE, {})

    def has_news(self) -> bool:
        """Whether it said something unasked, or has ended: `alive` then tells which."""
        return self._program.waiting()

    def ask(self, kind: int, value: Any) -> Any:
        """Send a question after all that waits, and wait for its answer."""
        self._waiting += frames.pack(kind, value)
        self._flush()
        while True:
            kind, payload = self._next()
            if kind == frames.ANSWER:
                return frames.unpack(payload)
            self._hear(kind, payload)

    # ---- work -----------------------------------------------------------------------------------------------------

    def tell(self, message: bytes) -> None:
        """Send something that is only answered where it fails; small messages wait for each other."""
        self._waiting += message
        if len(self._waiting) > AT_ONCE:
            self._flush()
            while self._program.waiting():
                self._hear(*self._next())

    @property
    def full(self) -> str:
        """Why the pod can write nothing more; empty where it can."""
        return next((kept.why for word, kept in self.troubles if word == "full"), "")

    def _hear(self, kind: int, payload: bytes) -> None:
        """Something unasked: that it is still at work, or trouble."""
        if kind != frames.TROUBLE:
            return
        told = frames.unpack(payload)
        if told["word"] == "refused":
            raise Refused(self.doing, told["wrong"], _HINTS.get(told["wrong"].partition(":")[0], ""))
        self.troubles.append((told["word"], Kept(told["path"], told["wrong"])))

    def _flush(self) -> None:
        with contextlib.suppress(EOFError):  # it has ended: reading tells why
            self._program.send(bytes(self._waiting))
        self._waiting.clear()

    def _next(self) -> tuple[int, bytes]:
        try:
            if not self._greeted and self._messages.take(len(frames.MAGIC)) != frames.MAGIC:
                raise ValueError("it answers with something else than our program")
            self._greeted = True
            return self._messages.next()
        except EOFError:
            raise why_ended(self._program, self.doing, self._python) from None
        except (ValueError, json.JSONDecodeError) as error:
            raise GpuctlError(self.doing, str(error)) from error

    def _more(self) -> bytes:
        return self._program.read()


_HINTS = {"another sync writes there": "wait until it has ended, or end it: a --watch holds the folder"}


def _entry(row: Any, sources: list[str]) -> Entry:
    kind, value, mode, source, by, put = row
    return Entry(kind, value, mode, (source[0], source[1], source[2]), sources[by], put)


def open_to(cluster: Cluster, pod: str, container: str, python: str, stop: Stop) -> PodStream:
    """Start our program in a pod."""
    started = pod_exec.start(cluster, pod, Command(packing.command(python), container, SILENT_S, stop))
    return PodStream(started, pod, python)
