"""The talk with our program in one pod: an order goes there, messages come back."""

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
from gpuctl.remote import packing
from gpuctl.remote.model import There
from gpuctl.remote.supervisor import frames, protocol

HERE = "gpuctl.remote.supervisor"
SWEEP = "ansible_collections.gpuctl.fleet.plugins.module_utils.launch.process_tree"
# Each imports only those before it.
MODULES = (f"{HERE}.frames", SWEEP, *(f"{HERE}.{n}" for n in ("protocol", "process", "log", "detached", "main")))
SILENT_S = 60.0  # a pod at work says so every 10 s
ALIVE_S = 10.0
WAIT_S = 0.2
NEEDS = "the image needs a python3, 3.8 or newer; --python names another one, such as /opt/conda/bin/python"
MOST = 64  # pods at the same time
Answer = TypeVar("Answer")
Asked = TypeVar("Asked", bound="Stoppable")


class Refused(GpuctlError):
    """The pod does not do what it was asked; `word`: start (no such program or folder), busy, none (no such run)."""

    def __init__(self, doing: str, wrong: str, word: str) -> None:
        super().__init__(doing, wrong)
        self.word = word


class Stoppable(Protocol):
    """A pod, as one asks it; once `stop` is set whatever is asked there is broken off."""

    @property
    def stop(self) -> Stop: ...


class Link:
    """An order in one pod, and what is said of it. One thread at a time may use it."""

    def __init__(self, started: pod_exec.Program, doing: str, there: There) -> None:
        self.doing, self._program, self._stop, self._python = doing, started, there.stop, there.python
        self._reader = frames.Reader(self._more)
        self._told = self._heard = self._until = time.monotonic()
        self._greeted = False

    @property
    def answers(self) -> bool:
        """Whether our program there has said anything yet."""
        return self._greeted

    def send(self, modules: tuple[str, ...], order: Mapping[str, Any]) -> None:
        """Our program, and what it is to do."""
        self._send(packing.packed(modules) + frames.pack(protocol.ORDER, order))

    def end(self) -> None:
        """Tell it to end what it does."""
        self._send(frames.raw(protocol.END, b""))

    def messages(self, wait_s: float = WAIT_S) -> Iterator[tuple[int, bytes]]:
        """What it says within so many seconds; `Unreachable` where the connection broke, or it is silent for long."""
        if self._stop.is_set():
            raise BrokenOff(self.doing, "broken off")
        if time.monotonic() - self._told > ALIVE_S:
            self._send(frames.raw(protocol.ALIVE, b""))
        if not self._program.waiting(wait_s):
            if time.monotonic() - self._heard > SILENT_S:
                raise Unreachable(self.doing, f"it has not answered for {SILENT_S:g} s")
            return
        # Who prints faster than is read always has more to say; we have something to say to it meanwhile, too.
        self._heard = time.monotonic()
        self._until = self._heard + WAIT_S
        try:
            yield from self._all()
        except EOFError:
            raise why_ended(self._program, self.doing, self._python) from None
        except ValueError as error:
            raise GpuctlError(self.doing, str(error)) from error

    def answer(self) -> Any:
        """The one answer to an order that has one."""
        while True:
            for kind, payload in self.messages():
                if kind in (protocol.ANSWER, protocol.STARTED, protocol.ENDED):
                    return frames.unpack(payload)

    def close(self) -> None:
        """Leave it: what is attached ends."""
        self._program.close()

    def _all(self) -> Iterator[tuple[int, bytes]]:
        with contextlib.suppress(BlockingIOError):
            if not self._greeted and self._reader.take(len(protocol.MAGIC)) != protocol.MAGIC:
                raise ValueError("it answers with something else than our program")
            self._greeted = True
            while True:
                kind, payload = self._next()
                if kind == protocol.REFUSED:
                    told = frames.unpack(payload)
                    raise Refused(self.doing, told["wrong"], told["word"])
                if kind != protocol.BEAT:
                    yield kind, payload

    def _next(self) -> tuple[int, bytes]:
        """A whole message, or BlockingIOError with nothing lost."""
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
        if time.monotonic() > self._until or not self._program.waiting():
            raise BlockingIOError
        return self._program.read()

    def _send(self, data: bytes) -> None:
        self._told = time.monotonic()
        with contextlib.suppress(EOFError):  # it has ended: reading tells why
            self._program.send(data)


def in_all(pods: Sequence[Asked], one: Callable[[Asked], Answer]) -> list[Answer]:
    """What comes of it in each pod, in their order, at the same time; Ctrl-C waits for none that does not answer."""
    with ThreadPoolExecutor(min(MOST, len(pods)) or 1) as pool:
        try:
            return list(pool.map(one, pods))
        except BaseException:
            for each in pods:
                each.stop.set()
            raise


def why_ended(started: pod_exec.Program, doing: str, python: str) -> GpuctlError:
    """Why our program ended before it had said all. `python`: what was to run it."""
    try:
        done = started.done()
    except NotStarted as error:
        return no_python(doing, python, error.wrong)
    except GpuctlError as error:
        return error
    return failure(done, doing, python)


def no_python(doing: str, python: str, why: str) -> GpuctlError:
    return GpuctlError(doing, f"its image has no {python} that can be run: {why}", NEEDS)


def failure(done: pod_exec.Done, doing: str, python: str) -> GpuctlError:
    """The same, where it is known how it ended."""
    last = next(reversed(done.err.splitlines()), "")
    if last.startswith("gpuctl-old-python"):
        return GpuctlError(doing, f"its Python is {last.split()[-1]}", NEEDS)
    if done.code in (126, 127):
        return no_python(doing, python, last)
    if done.code in (0, 137, 143):
        return Unreachable(doing, f"our program there was ended (exit code {done.code})", "is the pod ending?")
    return GpuctlError(doing, f"our program failed there: {last or f'exit code {done.code}'}")


@contextlib.contextmanager
def link(there: There, order: Mapping[str, Any], modules: tuple[str, ...] = MODULES) -> Iterator[Link]:
    """An order given to a pod; `modules`: what our program there is made of."""
    doing = f"run {' '.join(order.get('argv') or [order['what']])[:60]} in the pod {there.pod}"
    command = Command(packing.command(there.python), there.container, SILENT_S, there.stop)
    with contextlib.closing(there.start(there.cluster, there.pod, command)) as started:
        found = Link(started, doing, there)
        found.send(modules, order)
        yield found
