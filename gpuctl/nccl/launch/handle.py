"""A launch that one thread reads while another watches it; whichever is first ends it, once."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

from gpuctl.domain.ranks import Process
from gpuctl.nccl.judge.outcome import BROKEN_OFF
from gpuctl.nccl.launch.output import LaunchOutput
from gpuctl.nccl.model import Launch
from gpuctl.nccl.runner import ProgressListener


class WatchedLaunch(ABC):
    """`watch` is called repeatedly; the reader calls `is_read` after the last line.

    `token` identifies the run. `stop`: why gpuctl ended it, "limit" or "broken off". `looks`: the state of the
    ranks then.
    """

    def __init__(self, launch: Launch, token: str, save_output: Path | None, listener: ProgressListener) -> None:
        self.launch, self.token, self._listener = launch, token, listener
        self.begun = time.monotonic()
        self.stop = ""
        self.printed = LaunchOutput(launch, token, save_output, self.report)
        self.looks: dict[str, list[Process] | None] = {}
        # Acquired once, by whichever ends the launch first: the test itself or gpuctl.
        self._ending, self._ended_by_us = threading.Lock(), threading.Event()
        self._failed: BaseException | None = None  # error while ending it

    @abstractmethod
    def observe_ranks(self) -> dict[str, list[Process] | None]:
        """Return the state of every node's ranks."""

    @abstractmethod
    def end(self) -> None:
        """End it, so that the reader reaches the last line."""

    def report(self, message: str) -> None:
        """Report progress."""
        self._listener(self.launch, message)

    def watch(self, broken_off: bool) -> None:
        """End it after its time limit, or if the user stopped the test."""
        late = time.monotonic() - self.begun > self.launch.sweep.limit_s
        if not (broken_off or late) or not self._ending.acquire(blocking=False):
            return
        self.stop = BROKEN_OFF if broken_off else "limit"
        threading.Thread(target=self._end_it, daemon=True).start()

    def _end_it(self) -> None:
        try:
            try:
                if self.stop == "limit":
                    self.report("not finished within its limit: checking which ranks wait for which, then ending it")
                    self.looks = self.observe_ranks()
            finally:
                self.end()
        except BaseException as error:  # noqa: BLE001 - raised again by the reader, in is_read
            self._failed = error
        finally:
            self._ended_by_us.set()

    def is_read(self) -> None:
        """Wait for the thread that ends it, which may still be querying nodes; raises that thread's error."""
        if not self._ending.acquire(blocking=False):
            self._ended_by_us.wait()
        if self._failed is not None:
            raise self._failed
