"""A bound on the memory of a process that reads output of others, for readers that have no limit of their own."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import threading
from collections.abc import Iterator

INTERVAL_S = 0.02  # of processor time: reading at full speed adds some MiB within it


class TooMuchMemoryError(BaseException):
    """The process exceeds its bound. No `Exception`: Ansible's retries must not catch it."""


@contextlib.contextmanager
def bounded_memory(growth_bytes: int) -> Iterator[None]:
    """Raise `TooMuchMemoryError` within the block once memory has grown by more than this.

    A timer of the kernel checks it, which needs the main thread; in any other thread nothing is bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    most = _peak_bytes() + growth_bytes

    def check(*_: object) -> None:
        if _peak_bytes() > most:
            raise TooMuchMemoryError

    before = signal.signal(signal.SIGPROF, check)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
