"""Run programs with input and a time limit."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """The output and exit code of a program; `code` None: it ran out of time."""

    code: int | None
    out: bytes
    err: str


class Processes:
    """Programs that run at the same time and can all be ended at once, when the user breaks off."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, argv: Sequence[str], stdin: bytes | Callable[[], bytes], limit: float) -> Done:
        """Run one to its end, fed with `stdin`, or what it gives once it runs; OSError where it cannot be started."""
        # Not a pipe: an older OpenSSH that stays behind to share its connection (ControlPersist) keeps it open.
        with tempfile.TemporaryFile() as err:
            with self._lock:
                if self._stopped:
                    return Done(None, b"", "broken off")
                # Its own session: Ctrl-C reaches gpuctl alone, which then ends what it started.
                process = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, start_new_session=True
                )
                self._running.add(process)
            try:
                out, code = (
                    process.communicate(stdin() if callable(stdin) else stdin, timeout=limit)[0],
                    process.returncode,
                )
            except subprocess.TimeoutExpired:
                process.kill()
                out, code = process.communicate()[0], None
            finally:
                with self._lock:
                    self._running.discard(process)
            err.seek(0)
            return Done(code, out, err.read().decode(errors="replace"))

    def stop(self) -> None:
        """End everything that runs, and start nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.send_signal(signal.SIGTERM)
