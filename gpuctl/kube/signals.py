"""What runs until the user ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_ended() -> Iterator[threading.Event]:
    """Ctrl-C, SIGTERM and a closed terminal set the event, also in a script's background, where Ctrl-C is ignored."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in ENDINGS}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
