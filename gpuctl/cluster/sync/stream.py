"""Stream to our receiver in one pod, which takes messages and answers them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from gpuctl.cluster.sync.model import Entry, Kept, PodEntry, PodState
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command, Program
from gpuctl.remote import packing
from gpuctl.remote.connection import decoded, exit_error
from gpuctl.remote.supervisor import frames

# Each imports only those before it; the `main` of the last one is run.
RECEIVER = (
    "gpuctl.remote.supervisor.frames",
    *(f"gpuctl.cluster.sync.pod.{name}" for name in ("tree", "record", "write", "serve")),
)
AT_ONCE = 1 << 17  # bytes buffered before they are sent
SILENT_S = 60.0  # a pod at work says so every 10 s


class _Hello(TypedDict):
    sources: list[str]
    generation: str
    entries: dict[str, object]
    deviations: dict[str, object]


class _Synced(TypedDict):
    generation: str
    files: int
    bytes: int


class _Trouble(TypedDict):
    path: str
    word: str
    wrong: str


class CheckAnswer(TypedDict):
    """See `check` of pod/serve.py."""

    generation: str
    differs: list[str]


class Refused(GpuctlError):
    """The pod rejects this sync: another one writes there, or the folder is not writable."""


class PodStream:
    """An open stream to the receiver in one pod, run by `python`.

    Errors of single paths are collected in `troubles`, with their kind.
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

    def hello(self, target: str, source: str, who: str, **how: Any) -> PodState:
        """Begin: the pod locks the folder for us (with `check` it only reads) and returns its state.

        `how`: force, check, session; a broken connection of the same session must release the folder.
        """
        request = {"target": target, "source": source, "who": who, "force": False, "check": False, "session": "", **how}
        answer = self.ask(frames.HELLO, request, _Hello)
        with _making_sense(self.doing):
            entries = {path: _entry(row, answer["sources"]) for path, row in answer["entries"].items()}
            deviations = {path: None if row is None else _deviation(row) for path, row in answer["deviations"].items()}
        return PodState(entries, deviations, {}, answer["generation"])

    def read_states(self, paths: list[str]) -> Mapping[str, PodEntry]:
        """Read the pod's entries at these paths."""
        answer = self.ask(frames.LOOK, paths, dict[str, object])
        with _making_sense(self.doing):
            return {path: PodEntry(*_of_types(row, str, str, int)[:2]) for path, row in answer.items()}

    def sync(self) -> Mapping[str, Any]:
        """Wait until everything sent is done; return the number of files and bytes written."""
        answer: Mapping[str, Any] = self.ask(frames.SYNC, {}, _Synced)
        return answer

    def alive(self) -> None:
        """Wait for a sign of life; `Unreachable` if the pod is gone."""
        self.ask(frames.ALIVE, {}, dict[str, Any])

    def has_news(self) -> bool:
        """Return whether it sent something unrequested, or ended: `alive` then raises the reason."""
        return self._program.waiting()

    def check(self, target: str, paths: Mapping[str, Any]) -> CheckAnswer:
        """Return the pod's generation, and those of the paths whose content differs there."""
        answer: CheckAnswer = self.ask(frames.CHECK, {"target": target, "paths": paths}, CheckAnswer)
        return answer

    def ask(self, kind: int, value: Any, shape: object) -> Any:
        """Send a request after everything queued, and wait for the answer, which is of this type."""
        self._waiting += frames.pack(kind, value)
        self._flush()
        while True:
            kind, payload = self._next()
            if kind == frames.ANSWER:
                return decoded(self.doing, frames.text_of, payload, shape)
            self._receive(kind, payload)

    # ---- work -----------------------------------------------------------------------------------------------------

    def send(self, message: bytes) -> None:
        """Queue a message that is answered only on failure; small messages are sent together."""
        self._waiting += message
        if len(self._waiting) > AT_ONCE:
            self._flush()
            while self._program.waiting():
                self._receive(*self._next())

    @property
    def full(self) -> str:
        """Why the pod cannot write any more; empty if it can."""
        return next((kept.why for word, kept in self.troubles if word == "full"), "")

    def _receive(self, kind: int, payload: bytes) -> None:
        """Process an unrequested message: a heartbeat, or an error."""
        if kind != frames.TROUBLE:
            return
        trouble = decoded(self.doing, frames.text_of, payload, _Trouble)
        if trouble["word"] == "refused":
            raise Refused(self.doing, trouble["wrong"], _HINTS.get(trouble["wrong"].partition(":")[0], ""))
        self.troubles.append((trouble["word"], Kept(trouble["path"], trouble["wrong"])))

    def _flush(self) -> None:
        with contextlib.suppress(EOFError):  # it has ended: the next read raises the reason
            self._program.send(bytes(self._waiting))
        self._waiting.clear()

    def _next(self) -> tuple[int, bytes]:
        try:
            if not self._greeted and self._messages.take(len(frames.MAGIC)) != frames.MAGIC:
                raise ValueError("something other than our program answers")
            self._greeted = True
            return self._messages.next()
        except EOFError:
            raise exit_error(self._program, self.doing, self._python) from None
        except ValueError as error:
            raise GpuctlError(self.doing, str(error)) from error

    def _more(self) -> bytes:
        return self._program.read()


_HINTS = {"another sync writes there": "wait until it ends, or end it: a --watch keeps the folder locked"}


def _entry(row: object, sources: list[str]) -> Entry:
    kind, value, mode, source, by, put = _of_types(row, str, str, int, list, int, bool)
    first, second, third = _of_types(source, int, int, int)
    return Entry(kind, value, mode, (first, second, third), sources[by], put)


def _deviation(row: object) -> PodEntry:
    kind, value, _, ours = _of_types(row, str, str, int, bool)
    return PodEntry(kind, value, ours)


def _of_types(row: object, *types: type) -> list[Any]:
    """Return the row if its values are of these types; ValueError if not. A folder has thousands of rows."""
    if not isinstance(row, list) or tuple(map(type, row)) != types:
        raise ValueError(f"an entry is {str(row)[:80]}")
    return row


@contextlib.contextmanager
def _making_sense(doing: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, IndexError) as error:
        raise GpuctlError(doing, f"unexpected answer from the pod: {error}") from error


def open_to(cluster: Cluster, pod: str, container: str, python: str, stop: Stop) -> PodStream:
    """Start the receiver in a pod."""
    started = pod_exec.start(cluster, pod, Command(packing.command(python), container, SILENT_S, stop))
    return PodStream(started, pod, python)
