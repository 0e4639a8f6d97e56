"""Cancel a read from a cluster from another thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import urllib3


class Stop:
    """Cancellation token: setting it ends the watches and logs that other threads read."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._open: set[urllib3.BaseHTTPResponse] = set()
        self._lock = threading.Lock()

    def set(self) -> None:
        with self._lock:
            self._event.set()
        self.again()

    def again(self) -> None:
        """End the current reads; their readers start new requests."""
        with self._lock:
            for response in self._open:
                _shut(response)

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    @contextlib.contextmanager
    def holding(self, response: urllib3.BaseHTTPResponse) -> Iterator[None]:
        """Register a response for the time it is read."""
        with self._lock:
            self._open.add(response)
            if self._event.is_set():
                _shut(response)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(response)
            response.close()


def _shut(response: urllib3.BaseHTTPResponse) -> None:
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # it may have ended meanwhile
        response.shutdown()
