"""A launch that one thread reads while another watches it."""

from __future__ import annotations

import time

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.ranks import Process
from gpuctl.nccl.launch.handle import WatchedLaunch
from gpuctl.nccl.model import Launch, Sweep


class Launched(WatchedLaunch):
    """It never ends by itself; to look at it may fail."""

    def __init__(self, limit_s: float, fails: str = "") -> None:
        self.heard: list[str] = []
        self.ends, self.fails = 0, fails
        super().__init__(
            Launch(("a", "b"), Sweep(limit_s=limit_s)), "t", None, lambda _, words: self.heard.append(words)
        )

    def observe_ranks(self) -> dict[str, list[Process] | None]:
        if self.fails:
            raise GpuctlError("look", self.fails)
        return {"a": None, "b": []}

    def end(self) -> None:
        self.ends += 1


def test_what_takes_too_long_is_looked_at_and_ended_once() -> None:
    launched = Launched(0.01)
    time.sleep(0.02)
    launched.watch(broken_off=False)
    launched.watch(broken_off=True)
    launched.is_read()
    assert (launched.stop, launched.looks, launched.ends) == ("limit", {"a": None, "b": []}, 1)
    assert len(launched.heard) == 1


def test_what_cannot_be_looked_at_is_ended_all_the_same_and_told_to_whoever_reads() -> None:
    launched = Launched(0.01, fails="the controller is away")
    time.sleep(0.02)
    launched.watch(broken_off=False)
    with pytest.raises(GpuctlError, match="the controller is away"):
        launched.is_read()
    assert launched.ends == 1


def test_what_was_read_to_its_end_is_not_ended_any_more() -> None:
    launched = Launched(60)
    launched.is_read()
    launched.watch(broken_off=True)
    assert (launched.stop, launched.ends) == ("", 0)
