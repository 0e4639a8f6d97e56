"""Signal handling for commands that run until interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C, SIGTERM or hangup; also in a script's background job, where SIGINT is ignored."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in ENDINGS}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
