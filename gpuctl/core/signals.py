"""Catch Ctrl-C, so that remote programs can be ended before gpuctl ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c() -> Iterator[Callable[[], bool]]:
    """Catch Ctrl-C inside the block; the yielded function returns True once it was pressed."""
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
