"""Run a program to its end: feed it, read what it prints up to a limit, stop it when its time is over."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

# A visit to a host prints some 100 KB. The limit is there for what prints without end.
MOST_OUTPUT = 16 * 2**20
CHUNK = 2**16
POLL_S = 0.02  # where the system cannot report the end of a process (macOS)


@dataclass(frozen=True)
class Done:
    """Output and exit status of a program; `code` None: it ran out of time, or printed too much (`excess`)."""

    code: int | None
    out: bytes
    err: str
    excess: bool = False


class Processes:
    """Programs that run at the same time and can all be stopped at once, when the user interrupts."""

    def __init__(self, most_output: int = MOST_OUTPUT) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._most = most_output

    def run(self, argv: Sequence[str], stdin: bytes | Callable[[], bytes], limit: float) -> Done:
        """Run one to its end with `stdin`, or with what `stdin` returns once it runs; OSError if it cannot be started.

        A program that prints more than the limit, on either stream, is killed.
        """
        with self._lock:
            if self._stopped:
                return Done(None, b"", "interrupted")
            # Its own session: Ctrl-C reaches gpuctl alone, which then stops what it started.
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
            self._running.add(process)
        try:
            exchange = _Exchange(process, self._most)
            with contextlib.closing(exchange):
                exchange.run(stdin() if callable(stdin) else stdin, limit)
        finally:
            process.kill()  # of a process that has ended this does nothing
            process.wait()
            with self._lock:
                self._running.discard(process)
        err = bytes(exchange.err).decode(errors="replace")
        return Done(process.returncode if exchange.finished else None, bytes(exchange.out), err, exchange.excess)

    def stop(self) -> None:
        """Stop everything that runs, and start nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.send_signal(signal.SIGTERM)


class _Exchange:
    """Feeds a process and reads both of its streams, none of which may block the other or grow without limit.

    It ends with the process and its standard output. Its standard error may stay open longer: an older OpenSSH that
    stays behind to share its connection (ControlPersist) keeps it.
    """

    def __init__(self, process: subprocess.Popen[bytes], most: int) -> None:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None  # noqa: S101 - for mypy: pipes were requested
        assert stdout is not None  # noqa: S101
        assert stderr is not None  # noqa: S101
        self.out, self.err = bytearray(), bytearray()
        self.finished = self.excess = False
        self._process, self._most, self._unsent = process, most, memoryview(b"")
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
        """Give back all descriptors."""
        self._selector.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(OSError):  # unsent input: nobody reads it any more
                pipe.close()

    def run(self, feed: bytes, limit: float) -> None:
        """Until the process has ended, the time is over or too much was printed."""
        self._unsent = memoryview(feed)
        deadline = time.monotonic() + limit
        while not self.excess and not self.finished:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            for key, _ in self._selector.select(left if self._pidfd is not None else min(left, POLL_S)):
                key.data()
            self.finished = not self._is_open(self._stdout) and self._process.poll() is not None
        while not self.excess and self._receive(self._stderr, self.err):
            pass  # what it printed just before its end

    def _is_open(self, stream: IO[bytes]) -> bool:
        return stream in {key.fileobj for key in self._selector.get_map().values()}

    def _send(self) -> None:
        """Closes standard input after the last byte, or when nobody reads it any more."""
        try:
            if self._unsent:
                self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = self._unsent[:0]
        if not self._unsent:
            self._selector.unregister(self._stdin)
            self._stdin.close()

    def _receive(self, stream: IO[bytes], collected: bytearray) -> bool:
        """True if there was something to read."""
        try:
            chunk = os.read(stream.fileno(), CHUNK)
        except BlockingIOError:
            return False
        collected += chunk
        self.excess = self.excess or len(collected) > self._most
        if not chunk and self._is_open(stream):
            self._selector.unregister(stream)
        return bool(chunk)
