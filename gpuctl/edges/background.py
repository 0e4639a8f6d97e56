"""Programs that run in the background and never outlive gpuctl."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from gpuctl.edges.programs import gist, need

LONGEST_LINE = 2**16  # a longer one comes in pieces
# Asks Linux to kill the program when the thread that started it ends (PR_SET_PDEATHSIG, 1), then becomes the program.
# The parent may have ended before that was asked. Not by preexec_fn, which may hang where threads run.
TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def tied(argv: Sequence[str]) -> list[str]:
    """A command that ends with the thread that starts it, also where gpuctl is killed with SIGKILL.

    Linux only: macOS has nothing like it, and the command is returned as it is.
    """
    if sys.platform != "linux":
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", TIE, str(os.getpid()), *argv]


class Running:
    """A program that runs beside us, and ends with everything it started.

    `ready` counts its lines that begin with that text. Those that begin with one of `ordinary` are no complaint.
    """

    def __init__(self, argv: Sequence[str], ready: str, ordinary: tuple[str, ...]) -> None:
        need(argv[0])
        self.ready = 0
        self._last = self._complaint = ""
        self._ready, self._ordinary = ready, ordinary
        # A session of its own: Ctrl-C reaches gpuctl alone, which then ends all that it started.
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
                self._last = "" if line.startswith(self._ordinary) else line
                self._complaint = self._last or self._complaint

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def said(self) -> str:
        """The last error line; empty if ordinary output followed it."""
        last = self._last  # read once: the reader may change it meanwhile
        return gist(last) if last else ""

    @property
    def complaint(self) -> str:
        """The last error line, whatever followed it."""
        return gist(self._complaint) if self._complaint else ""

    @property
    def last_words(self) -> str:
        """The last error line, available after the process exited."""
        self._reader.join(1)
        return gist(self._last)

    def stop(self) -> None:
        """End it: asked first, then made to."""
        end(self._process)


def end(process: subprocess.Popen[Any]) -> None:
    """End a program and what it started: asked first, then made to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return
