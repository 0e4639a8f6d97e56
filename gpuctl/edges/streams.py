"""A long-running program: fed once, read line by line while it runs, ended when its time is over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import IO

LONGEST_LINE = 2**20
KEPT = 2**16  # bytes kept of the beginning of standard error, and as many of its end


class Stream:
    """One running program; OSError where it cannot be started."""

    def __init__(self, argv: Sequence[str], feed: bytes) -> None:
        # Its own session: Ctrl-C reaches gpuctl alone, which then ends what it started.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._stderr = HeadAndTail(self._process.stderr)
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - for mypy: it was asked for
        with contextlib.suppress(BrokenPipeError):  # it ended at once; what it said tells why
            stdin.write(feed)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def lines(self) -> Iterator[str]:
        """Output lines as they come, without line ends, until the program ends; an endless line comes in pieces."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - for mypy: it was asked for
        for line in iter(lambda: stdout.readline(LONGEST_LINE), b""):
            yield line.decode(errors="replace").rstrip("\r\n")

    def end(self) -> None:
        """Ask it to end; it may take a moment."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, patience_s: float = 10) -> tuple[int, str]:
        """Its exit status (negative: the signal that ended it) and its standard error; killed where it does not end."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, self._stderr.text()


class HeadAndTail:
    """Reads a stream in the background, so that its writer never waits, and keeps a bounded part of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None  # noqa: S101 - for mypy: a pipe was requested
        self._stream = stream
        self._head, self._tail, self._left_out = bytearray(), bytearray(), 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._stream as stream:
            while chunk := stream.read1(KEPT):  # type: ignore[attr-defined]  # a buffered pipe
                room = KEPT - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:]
                excess = max(0, len(self._tail) - KEPT)
                self._left_out += excess
                del self._tail[:excess]

    def text(self) -> str:
        """Call it when the writer has ended. Somebody else may hold the stream open for longer (ControlPersist)."""
        self._reader.join(1)
        gap = f"\n[{self._left_out} bytes left out]\n".encode() if self._left_out else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")
