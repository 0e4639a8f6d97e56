"""A long-running program: receives its input at once, is read line by line, and can be ended at any time."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import IO

LONGEST_LINE = 2**20
KEPT = 2**16  # bytes kept of the start of standard error, and of its end


class Stream:
    """One running program, started with `feed` as its standard input; OSError if it cannot be started."""

    def __init__(self, argv: Sequence[str], feed: bytes) -> None:
        # Its own session: Ctrl-C reaches only gpuctl, which then ends its programs.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._stderr = HeadAndTail(self._process.stderr)
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - for mypy: a pipe was requested
        with contextlib.suppress(BrokenPipeError):  # it has ended already; its output explains why
            stdin.write(feed)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def lines(self) -> Iterator[str]:
        """Yield output lines as they arrive, without line ends; a line longer than LONGEST_LINE comes in parts."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - for mypy: a pipe was requested
        for line in iter(lambda: stdout.readline(LONGEST_LINE), b""):
            yield line.decode(errors="replace").rstrip("\r\n")

    def end(self) -> None:
        """Send SIGTERM; the program may take a moment to end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, patience_s: float = 10) -> tuple[int, str]:
        """Return the exit status (negative: a signal) and standard error; kill a program that does not end in time."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, self._stderr.text()


class HeadAndTail:
    """Reads a stream in a thread, so that its writer never blocks; keeps its start and its end."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None  # noqa: S101 - for mypy: a pipe was requested
        self._stream = stream
        self._head, self._tail, self._omitted = bytearray(), bytearray(), 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._stream as stream:
            while chunk := stream.read1(KEPT):  # type: ignore[attr-defined]  # a buffered pipe
                room = KEPT - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:]
                excess = max(0, len(self._tail) - KEPT)
                self._omitted += excess
                del self._tail[:excess]

    def text(self) -> str:
        """The text; call it after the writer ended. Another process may hold the stream open (ControlPersist)."""
        self._reader.join(1)
        gap = f"\n[{self._omitted} bytes omitted]\n".encode() if self._omitted else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")
