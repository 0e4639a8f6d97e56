"""Share one query of Slurm among launches that need it at the same time: its controller serves a whole cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from gpuctl.core.errors import GpuctlError

EVERY_S = 1.0

_Answer = TypeVar("_Answer")


class Shared(Generic[_Answer]):
    """Query for several callers, at most once in `every_s` seconds.

    The query starts after the call, so its answer includes what the caller did before. A `GpuctlError` is shared like
    an answer: all waiting callers get it, and none repeats the query.
    """

    def __init__(self, ask: Callable[[], _Answer], every_s: float = EVERY_S) -> None:
        self._ask, self._every_s = ask, every_s
        self._lock = threading.Lock()
        self._begun, self._answer = -every_s, Future[_Answer]()

    def __call__(self) -> _Answer:
        called = time.monotonic()
        with self._lock:
            if self._begun < called:
                self._ask_again()
            answer = self._answer
        return answer.result()

    def _ask_again(self) -> None:
        time.sleep(max(0.0, self._begun + self._every_s - time.monotonic()))
        begun, answer = time.monotonic(), Future[_Answer]()
        try:
            answer.set_result(self._ask())
        except GpuctlError as error:
            answer.set_exception(error)
        self._begun, self._answer = begun, answer


def growing(first_s: float, most_s: float) -> Iterator[float]:
    """Pauses in seconds for polling, each twice as long as the one before, up to `most_s`."""
    while True:
        yield first_s
        first_s = min(2 * first_s, most_s)
