"""Ctrl-C as a question: what runs elsewhere is ended there, before gpuctl ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c() -> Iterator[Callable[[], bool]]:
    """Within it Ctrl-C breaks nothing off by itself; the function it gives says whether it was pressed."""
    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
