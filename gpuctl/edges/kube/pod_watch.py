"""Keep the pods with certain labels up to date inside a block, by one watch that resumes after a lost connection."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Object


class Pods:
    """`latest`: the last known pods by name; None before the first answer."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str]) -> None:
        self.latest: dict[str, Object] | None = None
        self._cluster, self._labels = cluster, labels
        self._changed, self._stop, self._count = threading.Condition(), Stop(), 0
        self._pool = AbandonablePool(1)
        self._watch: Future[None] | None = None

    def __enter__(self) -> Self:
        self._watch = self._pool.submit(self._follow)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop.set()
        self._pool.shutdown(wait=False)  # a pending request may take minutes

    def _follow(self) -> None:
        try:
            for now in watch.watch(self._cluster, self._cluster.kind("v1", "Pod"), self._labels, self._stop):
                with self._changed:
                    self.latest, self._count = now, self._count + 1
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._changed.notify_all()

    def check(self) -> None:
        """Raise the error that ended the watch, if any."""
        if self._watch and self._watch.done():
            self._watch.result()

    def wait(self, count: int, seconds: float) -> int:
        """Wait for a change since `count`, for at most `seconds`; return the current count."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != count, seconds)
            return self._count
