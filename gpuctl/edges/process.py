"""Start a program, feed it, and give it up when its time is over."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """What a program printed and how it ended; `code` None: it ran out of time."""

    code: int | None
    out: bytes
    err: str


class Processes:
    """Programs that run at the same time and can all be ended at once, when the user breaks off."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, argv: Sequence[str], stdin: bytes, limit: float) -> Done:
        """Run one to its end; OSError where it cannot be started."""
        with self._lock:
            if self._stopped:
                return Done(None, b"", "broken off")
            # Its own session: Ctrl-C reaches gpuctl alone, which then ends what it started.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            out, err = process.communicate(stdin, timeout=limit)
            return Done(process.returncode, out, err.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return Done(None, out, err.decode(errors="replace"))
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End everything that runs, and start nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.send_signal(signal.SIGTERM)
