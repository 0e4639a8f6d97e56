"""Run a program to its end: feed it, read its output up to a size limit, stop it after a time limit."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO
from weakref import WeakSet

from gpuctl.engine import visit_failures

MOST_OUTPUT = visit_failures.MOST_OUTPUT
CHUNK = 2**16
POLL_S = 0.02  # for systems that cannot report the end of a process (macOS)


@dataclass(frozen=True)
class Done:
    """Output and exit status of a program. `code`: None if it exceeded its time, or printed too much (`excess`).

    `first`: bytes of `out` before the second turn; 0 if it had none. `limit`: seconds of the last turn.
    """

    code: int | None
    out: bytes
    err: str
    excess: bool = False
    first: int = 0
    limit: float = 0.0


@dataclass(frozen=True)
class SecondTurn:
    """More input for a program, after it has answered to the first.

    `answered`: True once its output holds the whole answer. `then`: receives that output, and returns the other input
    and the seconds for it; None ends the input. It may take as long as it needs; the program's time stands still.
    """

    answered: Callable[[bytearray], bool]
    then: Callable[[bytes], tuple[bytes, float] | None]


class Processes:
    """Concurrent programs that can be stopped together, such as on Ctrl-C.

    `most_output`: bytes that a program may print on either stream. Programs that they started, such as the ProxyCommand
    of ssh, are stopped with them, unless those left their process group. Without a session of their own, they can ask
    questions on the terminal, Ctrl-C reaches them, too, and what they started is not stopped. `grace`: seconds for
    which standard output may stay open after a program's end.
    """

    def __init__(self, most_output: int = MOST_OUTPUT, *, new_session: bool = True, grace: float = math.inf) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._most = most_output
        self._new_session = new_session
        self._grace = grace
        with _REGISTRY:
            self._stopped = _ENDING.is_set()
            _ALL.add(self)

    def run(  # noqa: PLR0913, PLR0917 - as subprocess.run
        self,
        argv: Sequence[str],
        stdin: bytes | Callable[[], bytes],
        limit: float,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        second: SecondTurn | None = None,
    ) -> Done:
        """Run a program to its end; OSError if it cannot be started.

        `stdin`: its input, or a function that returns the input and is called once the program runs. `limit`: seconds.
        `environment`: all its variables, `folder`: where it works; None for those of this process. A program that
        prints more than the size limit on either stream is killed. `second`: if it is to get more input later.
        """
        with self._lock:
            if self._stopped:
                return Done(None, b"", "interrupted")
            # In its own session, Ctrl-C reaches only gpuctl, which then stops its programs.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=self._new_session,
                env=environment,
                cwd=folder,
            )
            self._running.add(process)
        exchange = _Exchange(process, self._most, self._grace)
        try:
            with contextlib.closing(exchange):
                exchange.run(stdin() if callable(stdin) else stdin, limit, second)
        finally:
            if not exchange.finished or self._stopped:  # also what such a program has left of its group
                self._signal(process, signal.SIGKILL)
            process.wait()
            with self._lock:
                self._running.discard(process)
        err = bytes(exchange.err).decode(errors="replace")
        code = process.returncode if exchange.finished else None
        return Done(code, bytes(exchange.out), err, exchange.excess, exchange.first, exchange.limit)

    def stop(self) -> None:
        """Stop all programs, and refuse to start more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                self._signal(process, signal.SIGTERM)

    def kill(self) -> None:
        """End all programs at once."""
        with self._lock:
            for process in self._running:
                self._signal(process, signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        """True while a program runs, or one that it started."""
        with self._lock:
            return any(self._is_left(process) for process in self._running)

    def _is_left(self, process: subprocess.Popen[bytes]) -> bool:
        if not self._new_session:
            return process.returncode is None
        try:
            os.killpg(process.pid, 0)
        except OSError:
            return False
        return True

    def _signal(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Signal a program that has not been waited for; does nothing if it has ended."""
        if self._new_session:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # on macOS also for one that has ended
                os.killpg(process.pid, number)
        else:
            process.send_signal(number)


_ALL: WeakSet[Processes] = WeakSet()
_REGISTRY = threading.Lock()
_ENDING = threading.Event()  # no program is started any more


def stop_all(limit_s: float) -> None:
    """Stop the programs of all threads, for a process that ends before them; none is started any more.

    Those that have not ended after `limit_s` seconds are killed.
    """
    with _REGISTRY:
        _ENDING.set()
        running = list(_ALL)
    for processes in running:
        processes.stop()
    end = time.monotonic() + limit_s
    while time.monotonic() < end and any(processes.is_running for processes in running):
        time.sleep(POLL_S)
    for processes in running:
        processes.kill()


class _Exchange:
    """Feeds a process and reads both of its streams; none blocks another or grows without limit.

    It ends with the process and its standard output, or at most `grace` seconds after the process: a program that it
    started may hold its standard output. Standard error may stay open longer: an older OpenSSH that keeps
    running to share its connection (ControlPersist) holds it.
    """

    def __init__(self, process: subprocess.Popen[bytes], most: int, grace: float) -> None:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None  # noqa: S101 - for mypy: pipes were requested
        assert stdout is not None  # noqa: S101
        assert stderr is not None  # noqa: S101
        self.out, self.err = bytearray(), bytearray()
        self.finished = self.excess = False
        self.first, self.limit = 0, 0.0
        self._second: SecondTurn | None = None
        self._process, self._most, self._unsent = process, most, memoryview(b"")
        self._grace = grace
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        self._selector = selectors.DefaultSelector()
        self._pidfd = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
        for pipe in (stdin, stdout, stderr):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(stdin, selectors.EVENT_WRITE, self._send)
        self._selector.register(stdout, selectors.EVENT_READ, lambda: self._receive(stdout, self.out))
        self._selector.register(stderr, selectors.EVENT_READ, lambda: self._receive(stderr, self.err))
        if self._pidfd is not None:
            pidfd = self._pidfd
            self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._selector.unregister(pidfd))

    def close(self) -> None:
        """Close all descriptors."""
        self._selector.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(OSError):  # unsent input that nobody reads any more
                pipe.close()

    def run(self, feed: bytes, limit: float, second: SecondTurn | None = None) -> None:
        """Exchange data until the process ends, exceeds its time or prints too much."""
        self._unsent, self._second, self.limit = memoryview(feed), second, limit
        deadline, last = time.monotonic() + limit, math.inf
        while not self.excess and not self.finished:
            left = min(deadline, last) - time.monotonic()
            if left <= 0 and last > deadline:
                return
            if left <= 0:
                self.finished = True
                break
            for key, _ in self._selector.select(left if self._pidfd is not None else min(left, POLL_S)):
                key.data()
            if self._second is not None and self._second.answered(self.out):
                deadline = self._take_second_turn(self._second) or deadline
            if self._process.poll() is not None:
                self.finished = not self._is_open(self._stdout)
                last = min(last, time.monotonic() + self._grace)
        while not self.excess and self._receive(self._stderr, self.err):
            pass  # output from just before the end

    def _take_second_turn(self, turn: SecondTurn) -> float | None:
        """Send the other input, or end the input. Return the new deadline; None if there is no second turn."""
        more = turn.then(bytes(self.out))
        self._second = None
        if self._process.poll() is None and not self._stdin.closed:
            self._unsent = memoryview(more[0] if more else b"")
            if not self._is_open(self._stdin):
                self._selector.register(self._stdin, selectors.EVENT_WRITE, self._send)
            if more:
                self.first, self.limit = len(self.out), more[1]
        return time.monotonic() + more[1] if more else None

    def _is_open(self, stream: IO[bytes]) -> bool:
        return stream in {key.fileobj for key in self._selector.get_map().values()}

    def _send(self) -> None:
        """Send the next part; close standard input after the last byte, or if nobody reads it any more.

        Before a second turn it stays open.
        """
        try:
            if self._unsent:
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent, self._second = self._unsent[:0], None
        if not self._unsent:
            self._selector.unregister(self._stdin)
            if self._second is None:
                self._stdin.close()

    def _receive(self, stream: IO[bytes], collected: bytearray) -> bool:
        """Read the next part; False if there was none."""
        try:
            chunk = os.read(stream.fileno(), CHUNK)
        except BlockingIOError:
            return False
        collected += chunk
        self.excess = self.excess or len(collected) > self._most
        if not chunk and self._is_open(stream):
            self._selector.unregister(stream)
        return bool(chunk)
