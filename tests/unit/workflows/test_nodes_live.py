"""Readings of nodes that are repeated: hosts that hang, answers that are collected late, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.hosts.model import HostResult, Target
from gpuctl.workflows.nodes_live import LiveNodes
from tests.rig.gpu_user_facts import facts

HOSTS = [Target("a"), Target("b"), Target("c", needs_ansible="a jump host with a password")]
OnResult = Callable[[HostResult], None]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


def answer(name: str) -> HostResult:
    return HostResult(name, answer={"use": facts()})


def ignored(_: str) -> None:
    pass


def test_a_host_that_hangs_is_not_asked_again_and_delays_no_other() -> None:
    asked: list[list[str]] = []
    released = threading.Event()

    def ask(hosts: Sequence[Target], on_result: OnResult) -> None:
        asked.append([host.name for host in hosts])
        on_result(answer("a"))
        if len(hosts) > 1:
            released.wait(30)
            on_result(HostResult("b", wrong="no answer within 60 s"))

    live = LiveNodes(HOSTS, ask)
    assert [name for name, node in live.nodes.items() if node is not None] == ["c"]
    for _ in range(2):
        live.start()
        live.collect(0.3, ignored)
    assert asked == [["a", "b"], ["a"]]
    assert list(live.waiting) == ["b"]
    assert [name for name, node in live.nodes.items() if node is None] == ["b"]
    released.set()
    live.collect(10, ignored)
    assert not live.waiting
    assert [node.why for node in live.nodes.values() if node is not None][1] == "no answer within 60 s"


def test_an_answer_that_is_collected_late_has_the_time_of_its_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = threading.Event()

    def ask(hosts: Sequence[Target], on_result: OnResult) -> None:
        on_result(answer("a"))
        arrived.set()

    live = LiveNodes(HOSTS[:1], ask)
    before = round(time.time())
    live.start()
    assert arrived.wait(30)
    monkeypatch.setattr(time, "time", lambda: before + 3600.0)
    assert live.collect(10, ignored) == 1
    assert live.read_at is not None
    assert live.read_at < before + 1800


def test_an_error_of_a_reading_is_raised_once_and_its_hosts_are_asked_again() -> None:
    errors = [GpuctlError("start ssh", "it is not installed")]

    def ask(hosts: Sequence[Target], on_result: OnResult) -> None:
        if errors:
            raise errors.pop()
        on_result(answer("a"))

    live = LiveNodes(HOSTS[:1], ask)
    live.start()
    with pytest.raises(GpuctlError, match="it is not installed"):
        live.collect(10, ignored)
    live.start()
    assert live.collect(10, ignored) == 1
