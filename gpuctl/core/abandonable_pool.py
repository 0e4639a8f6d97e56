"""Thread pool for read-only requests; on error or Ctrl-C, queued work is dropped and running work abandoned."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AbandonablePool(Executor):
    """A pool of `threads` threads, for a `with` block whose work changes nothing.

    The standard library's pool finishes all queued work even if an error or Ctrl-C ends the block, and Python's exit
    waits for its threads again: minutes if a server does not answer. This one then drops work that has not started;
    work that has started ends with the process.
    """

    def __init__(self, threads: int) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True, name="abandonable") for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._queue.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._drop()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _drop(self) -> None:
        """Cancel the work that has not started."""
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            if job:
                job[0].cancel()

    def _work(self) -> None:
        while job := self._queue.get():
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - `Future.result` raises it
                future.set_exception(error)
