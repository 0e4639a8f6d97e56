"""A long-running program: fed once, read line by line while it runs, ended when its time is over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence


class Stream:
    """One running program; OSError where it cannot be started."""

    def __init__(self, argv: Sequence[str], feed: bytes) -> None:
        # A file, not a pipe: nobody has to read it while the program runs.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the program
        # Its own session: Ctrl-C reaches gpuctl alone, which then ends what it started.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True
        )
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - for mypy: it was asked for
        with contextlib.suppress(BrokenPipeError):  # it ended at once; what it said tells why
            stdin.write(feed)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def lines(self) -> Iterator[str]:
        """Output lines as they arrive, without line ends, until the program ends."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - for mypy: it was asked for
        for line in stdout:
            yield line.decode(errors="replace").rstrip("\r\n")

    def end(self) -> None:
        """Ask it to end; it may take a moment."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def ended(self, patience_s: float = 10) -> tuple[int, str]:
        """Wait for the exit status (negative: the signal that ended it) and standard error; kill it if it does not end."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._stderr.seek(0)
        return code, self._stderr.read().decode(errors="replace")
