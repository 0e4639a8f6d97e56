"""Waiting for hosts that reboot: until they are up, and never for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gpuctl.hosts.model import HostResult, Target
from gpuctl.workflows import host_reboot

LOST = HostResult("n1", wrong="no route to host", unreachable=True)


def boot(number: int, *, up: bool = True) -> HostResult:
    return HostResult("n1", {"act": {"state": "due", "boot_id": f"boot-{number}", "up": up, "reason": ""}})


def reboot(patch: pytest.MonkeyPatch, answers: Sequence[HostResult], last: HostResult) -> str:
    """Reboot a host that gives these answers, then the last one for ever, once every 100 s."""
    clock = iter(range(0, 10**6, 100))
    patch.setattr("gpuctl.workflows.host_reboot.time.monotonic", lambda: float(next(clock)))
    patch.setattr("gpuctl.workflows.host_reboot.time.sleep", lambda _: None)
    done = HostResult("n1", {"act": {"state": "done", "boot_id": "boot-1", "up": True, "reason": ""}})
    left: Iterator[HostResult] = iter([boot(1), done, *answers])
    asked = 0

    def visit(*_: Any, **__: Any) -> list[HostResult]:
        nonlocal asked
        asked += 1
        assert asked < 100, "it waits for ever"
        return [next(left, last)]

    patch.setattr(host_reboot, "run_on_all", visit)
    return host_reboot.reboot([Target("n1")], "driver", forks=1, limit_s=1000)["n1"]


def test_a_host_is_back_once_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reboot(monkeypatch, [boot(1), LOST, boot(2, up=False)], boot(2)) == ""


def test_a_unit_that_never_starts_does_not_keep_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reboot(monkeypatch, [LOST], boot(2, up=False)) == ""


def test_a_host_that_is_lost_after_its_first_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = reboot(monkeypatch, [LOST, boot(2, up=False)], LOST)
    assert wrong == "it came back and was lost again: no route to host"


def test_a_host_that_never_answers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reboot(monkeypatch, [], LOST) == "it did not come back within 1000 s: no route to host"
