"""Programs that run in the background: tied to gpuctl, or detached from it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.edges.programs import gist, is_cut_page, last_part, need

LONGEST_LINE = 2**16  # a longer one is read in parts
# Asks Linux to kill the program when the thread that started it ends (PR_SET_PDEATHSIG, 1), then becomes the program.
# The parent may have ended before the request. Not by preexec_fn, which may deadlock in a program with threads.
TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def tied(argv: Sequence[str]) -> list[str]:
    """Wrap a command so that it ends with the thread that starts it, even if gpuctl is killed with SIGKILL.

    Linux only: macOS has no such signal, and the command is returned unchanged.
    """
    if sys.platform != "linux":
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", TIE, str(os.getpid()), *argv]


class BackgroundProgram:
    """A running program that is ended together with everything it started.

    `ready`: number of its output lines that begin with that text. Lines that begin with one of `ordinary` are not
    errors; all others are.
    """

    def __init__(self, argv: Sequence[str], ready: str, ordinary: tuple[str, ...]) -> None:
        need(argv[0])
        self.ready = 0
        self._last = self._last_error = ""
        self._ready, self._ordinary = ready, ordinary
        # Its own session: Ctrl-C reaches only gpuctl, which then ends its programs.
        self._process = subprocess.Popen(
            tied(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - for mypy: a pipe was requested
        for line in iter(lambda: stdout.readline(LONGEST_LINE), ""):
            self.ready += line.startswith(self._ready)
            if line.strip():
                self._last = "" if line.startswith(self._ordinary) else self._error(line)
                self._last_error = self._last or self._last_error

    def _error(self, line: str) -> str:
        """Return an error line, with the lines before it if it continues a server's error page."""
        before = self._last if len(self._last) < LONGEST_LINE else ""
        return before + line if is_cut_page(before) else line

    @property
    def exited(self) -> bool:
        return self._process.poll() is not None

    @property
    def current_error(self) -> str:
        """The last error line; "" if ordinary output followed it."""
        last = self._last  # read once: the reader may change it meanwhile
        return gist(last) if last else ""

    @property
    def last_error(self) -> str:
        """The last error line, even if ordinary output followed it; "" if there was none."""
        return gist(self._last_error) if self._last_error else ""

    @property
    def exit_error(self) -> str:
        """The error line that the process exited with; wait for the exit first."""
        self._reader.join(1)
        return gist(self._last)

    def stop(self) -> None:
        """End it with SIGTERM, then SIGKILL."""
        end(self._process)


class Detached:
    """A program that outlives gpuctl: its own session, no terminal, the folder /, `feed` as its standard input."""

    def __init__(self, argv: Sequence[str], feed: bytes, environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe would break when gpuctl ends
        self._process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
            cwd="/",
        )
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - for mypy: a pipe was requested
        with contextlib.suppress(BrokenPipeError), stdin:
            stdin.write(feed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def stderr(self) -> str:
        """The error output up to now; of a long one its end."""
        return last_part(self._stderr)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()


def end(process: subprocess.Popen[Any]) -> None:
    """End a program and everything it started with SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return
