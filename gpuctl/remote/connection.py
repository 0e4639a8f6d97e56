"""Connection to our supervisor in one pod: an order is sent, messages come back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.pod_exec import BrokenOff, Command, NotStarted
from gpuctl.engine import typed_json
from gpuctl.remote import answer_types, packing
from gpuctl.remote.model import PodTarget
from gpuctl.remote.supervisor import frames, protocol

PACKAGE = "gpuctl.remote.supervisor"
PROCESS_TREE = "ansible_collections.gpuctl.fleet.plugins.module_utils.launch.process_tree"
# Each imports only those before it.
MODULES = (
    f"{PACKAGE}.frames",
    PROCESS_TREE,
    *(f"{PACKAGE}.{n}" for n in ("protocol", "process", "log", "detached", "supervise")),
)
SILENT_S = 60.0  # a pod at work says so every 10 s
ALIVE_S = 10.0
WAIT_S = 0.2
PYTHON_HINT = "the image needs a python3, 3.8 or newer; --python names another one, such as /opt/conda/bin/python"
MAX_PODS = 64  # pods at the same time
Answer = TypeVar("Answer")
Reachable = TypeVar("Reachable", bound="Stoppable")


class Refused(GpuctlError):
    """The supervisor refuses an order; `reason`: start (no such program or folder), busy, none (no such run)."""

    def __init__(self, doing: str, wrong: str, reason: str) -> None:
        super().__init__(doing, wrong)
        self.reason = reason


class Stoppable(Protocol):
    """A pod that accepts requests; once `stop` is set, pending requests are broken off."""

    @property
    def stop(self) -> Stop: ...


class Connection:
    """An order in one pod and the messages that answer it. Not thread-safe."""

    def __init__(self, started: pod_exec.Program, doing: str, target: PodTarget) -> None:
        self.doing, self._program, self._stop, self._python = doing, started, target.stop, target.python
        self._reader = frames.Reader(self._more)
        self._sent_at = self._heard_at = self._read_until = time.monotonic()
        self._greeted = False

    @property
    def answers(self) -> bool:
        """True once the supervisor has sent anything."""
        return self._greeted

    def send(self, modules: tuple[str, ...], order: Mapping[str, Any]) -> None:
        """Send our program and its order."""
        self._send(packing.packed(modules) + frames.pack(protocol.ORDER, order))

    def end(self) -> None:
        """Ask the supervisor to end what it runs."""
        self._send(frames.raw(protocol.END, b""))

    def messages(self, wait_s: float = WAIT_S) -> Iterator[tuple[int, bytes]]:
        """Yield the messages of the next `wait_s` seconds; `Unreachable` if the connection broke or the pod is silent
        too long.
        """
        if self._stop.is_set():
            raise BrokenOff(self.doing, "broken off")
        if time.monotonic() - self._sent_at > ALIVE_S:
            self._send(frames.raw(protocol.ALIVE, b""))
        if not self._program.waiting(wait_s):
            if time.monotonic() - self._heard_at > SILENT_S:
                raise Unreachable(self.doing, f"it has not answered for {SILENT_S:g} s")
            return
        # A program that prints faster than we read always has more: leave the loop in time to send our own messages.
        self._heard_at = time.monotonic()
        self._read_until = self._heard_at + WAIT_S
        try:
            yield from self._all()
        except EOFError:
            raise exit_error(self._program, self.doing, self._python) from None
        except ValueError as error:
            raise GpuctlError(self.doing, str(error)) from error

    def answer(self, shape: object, *, extra: bool = False) -> Any:
        """Wait for the single answer to a request, and return it as a type; see `decode`."""
        while True:
            for kind, payload in self.messages():
                if kind in (protocol.ANSWER, protocol.STARTED, protocol.ENDED):
                    return self.decode(payload, shape, extra=extra)

    def decode(self, payload: bytes, shape: object, *, extra: bool = False) -> Any:
        """Return a message as a type of answer_types.py; `GpuctlError` if it is of another. See `typed_json.read`."""
        return decoded(self.doing, frames.text_of, payload, shape, extra=extra)

    def close(self) -> None:
        """Close the connection; an attached program ends."""
        self._program.close()

    def _all(self) -> Iterator[tuple[int, bytes]]:
        with contextlib.suppress(BlockingIOError):
            if not self._greeted and self._reader.take(len(protocol.MAGIC)) != protocol.MAGIC:
                raise ValueError("something other than our program answers")
            self._greeted = True
            while True:
                kind, payload = self._next()
                if kind == protocol.REFUSED:
                    refusal = self.decode(payload, answer_types.Refusal)
                    raise Refused(self.doing, refusal["wrong"], refusal["reason"])
                if kind != protocol.BEAT:
                    yield kind, payload

    def _next(self) -> tuple[int, bytes]:
        """Return one whole message, or raise BlockingIOError and lose nothing."""
        while len(self._reader.buffer) < frames.HEAD.size:
            self._reader.buffer += self._some()
        length = frames.HEAD.unpack_from(self._reader.buffer)[1]
        while length <= frames.MOST and len(self._reader.buffer) < frames.HEAD.size + length:
            self._reader.buffer += self._some()
        return self._reader.next()

    def _some(self) -> bytes:
        part = self._more()
        if not part:
            raise EOFError(self.doing)
        return part

    def _more(self) -> bytes:
        if time.monotonic() > self._read_until or not self._program.waiting():
            raise BlockingIOError
        return self._program.read()

    def _send(self, data: bytes) -> None:
        self._sent_at = time.monotonic()
        with contextlib.suppress(EOFError):  # it has ended: the next read raises the reason
            self._program.send(data)


def decoded(
    doing: str, text_of: Callable[[bytes], bytes], payload: bytes, shape: object, *, extra: bool = False
) -> Any:
    """Return a pod's answer as a type; `GpuctlError` if it is of another.

    `text_of` returns the JSON text of the payload, or raises a ValueError if that is damaged.
    """
    try:
        value = typed_json.parse(text_of(payload))
    except ValueError as error:
        raise GpuctlError(doing, f"the pod's answer cannot be decoded: {error}") from error
    return fitting(doing, value, shape, extra=extra)


def fitting(doing: str, value: object, shape: object, place: str = "", *, extra: bool = False) -> Any:
    """Return a part of a pod's answer as a type; `GpuctlError` if it is of another."""
    try:
        return typed_json.read(value, shape, place, extra=extra)
    except typed_json.Misfit as error:
        raise GpuctlError(doing, f"unexpected answer from the pod: {error}") from error


def run_in_all(pods: Sequence[Reachable], work: Callable[[Reachable], Answer]) -> list[Answer]:
    """Call `work` for every pod concurrently and return the results in order; Ctrl-C does not wait for silent pods."""
    with ThreadPoolExecutor(min(MAX_PODS, len(pods)) or 1) as pool:
        try:
            return list(pool.map(work, pods))
        except BaseException:
            for pod in pods:
                pod.stop.set()
            raise


def exit_error(started: pod_exec.Program, doing: str, python: str) -> GpuctlError:
    """Explain why our program ended before it answered. `python`: the interpreter that was to run it."""
    try:
        done = started.done()
    except NotStarted as error:
        return no_python(doing, python, error.wrong)
    except GpuctlError as error:
        return error
    return explain_exit(done, doing, python)


def no_python(doing: str, python: str, why: str) -> GpuctlError:
    return GpuctlError(doing, f"its image has no {python} that can be run: {why}", PYTHON_HINT)


def explain_exit(done: pod_exec.Done, doing: str, python: str) -> GpuctlError:
    """Turn the exit of our program into an error."""
    last = next(reversed(done.err.splitlines()), "")
    if last.startswith("gpuctl-old-python"):
        return GpuctlError(doing, f"its Python is {last.split()[-1]}", PYTHON_HINT)
    if done.code in (126, 127):
        return no_python(doing, python, last)
    if done.code in (0, 137, 143):
        return Unreachable(
            doing, f"our program was killed in the pod (exit code {done.code})", "check whether the pod is terminating"
        )
    return GpuctlError(doing, f"our program failed in the pod: {last or f'exit code {done.code}'}")


@contextlib.contextmanager
def connect(target: PodTarget, order: Mapping[str, Any], modules: tuple[str, ...] = MODULES) -> Iterator[Connection]:
    """Send an order to a pod and yield the connection; `modules`: the modules our program consists of."""
    doing = f"run {' '.join(order.get('argv') or [order['what']])[:60]} in the pod {target.pod}"
    command = Command(packing.command(target.python), target.container, SILENT_S, target.stop)
    with contextlib.closing(target.start(target.cluster, target.pod, command)) as started:
        connection = Connection(started, doing, target)
        connection.send(modules, order)
        yield connection
