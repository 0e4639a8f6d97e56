"""A program that stays as long as we do: its standard input remains open, and a byte every ten seconds says so."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Sequence

from gpuctl.edges.streams import LONGEST_LINE, HeadAndTail

BEAT_S = 10.0
ENDS_S = 10.0


class SessionProgram:
    """A running program; OSError if it cannot be started. It is to end when its input closes."""

    def __init__(self, argv: Sequence[str], feed: bytes) -> None:
        # Its own session: Ctrl-C reaches the program in the foreground, and this one ends after it.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._stderr = HeadAndTail(self._process.stderr)
        self._over = threading.Event()
        self._lines: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, args=(feed,), daemon=True)
        self._reader.start()
        self._writer.start()

    def first_line(self, limit_s: float) -> bytes:
        """First line of its output; empty if it ends without one, or after the limit."""
        self._reader.join(limit_s)
        return self._lines[0] if self._lines else b""

    def close(self) -> tuple[int, str]:
        """Close its input, and wait for its end; exit status and standard error."""
        self._over.set()
        self._writer.join(ENDS_S)
        try:
            code = self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, self._stderr.text()

    def _read(self) -> None:
        stdout = self._process.stdout
        if stdout is not None:
            self._lines.append(stdout.readline(LONGEST_LINE))

    def _write(self, feed: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None:
            return
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(feed)
            stdin.flush()
            while not self._over.wait(BEAT_S):
                stdin.write(b"\n")
                stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
