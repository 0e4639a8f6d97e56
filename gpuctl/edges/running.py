"""Programs that run beside gpuctl, and never longer than it."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from gpuctl.edges.kubectl import gist, need

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
    """A program that runs beside us: its last lines are kept, and it ends with everything it started."""

    def __init__(self, argv: Sequence[str]) -> None:
        need(argv[0])
        self.lines: collections.deque[str] = collections.deque(maxlen=20)
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
        for line in self._process.stdout or ():
            self.lines.append(line.rstrip())

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def last_words(self) -> str:
        """Its last line; where it has ended, after all of its output was read."""
        if self.ended:
            self._reader.join(1)
        return gist("\n".join(self.lines))

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
