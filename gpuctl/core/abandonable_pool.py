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
    """So many threads, for a `with` block.

    The standard library's own pool carries out all that is queued, also where an error or Ctrl-C has ended the block,
    and Python's end waits for its threads once more: minutes, where a server does not answer. Here what has not begun
    is then dropped, and what has begun is left behind and ends with the process. So it is only for what changes
    nothing: questions.
    """

    def __init__(self, at_once: int) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True, name="asker") for _ in range(at_once)]
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
            future, ask = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer is asked for
                future.set_exception(error)
