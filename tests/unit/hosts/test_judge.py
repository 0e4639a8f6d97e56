"""Status words and exit codes of results."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.hosts.flow import batches
from gpuctl.hosts.judge import exit_code, status
from gpuctl.hosts.model import HostResult, Target


def result(*states: str, changed: bool = False) -> HostResult:
    """A host whose knobs are in these states."""
    knobs: list[dict[str, Any]] = [
        {"knob": f"k{i}", "state": s, "changed": changed, "reboot": True} for i, s in enumerate(states)
    ]
    return HostResult("h", answer={"knobs": knobs})


SILENT = HostResult("h", wrong="it cannot be reached", unreachable=True)
LOCKED = HostResult("h", wrong="another run is at work on this host")


@pytest.mark.parametrize(
    ("host", "word", "tune", "drift"),
    [
        (result("ok"), "ok", 0, 0),
        (result("ok", changed=True), "changed", 0, 0),
        (result("ok", "differs"), "differs", 0, 1),
        (result("ok", "pending"), "needs a reboot", 0, 1),
        (result("ok", "unsupported"), "ok", 0, 0),
        (result("unknown"), "problems", 1, 1),
        (result("refused"), "problems", 1, 1),
        (result("contested"), "problems", 1, 1),
        (result("conflict"), "problems", 1, 1),
        (result("failed", changed=True), "problems", 1, 1),
        (SILENT, "unreachable", 3, 3),
        (LOCKED, "failed", 3, 3),
    ],
)
def test_a_host_has_one_status_and_one_exit_code(host: HostResult, word: str, tune: int, drift: int) -> None:
    assert status(host) == word
    assert exit_code([host]) == tune
    assert exit_code([host], drift=True) == drift


def test_strict_makes_unsupported_a_problem() -> None:
    assert exit_code([result("unsupported")], strict=True) == 1


def test_the_worst_host_decides() -> None:
    assert exit_code([result("ok"), result("failed"), SILENT]) == 3


@pytest.mark.parametrize(
    ("size", "sizes"), [("100%", [10]), ("3", [3, 3, 3, 1]), ("25%", [2, 2, 2, 2, 2]), ("1%", [1] * 10)]
)
def test_batches_have_a_number_or_a_share_of_hosts(size: str, sizes: list[int]) -> None:
    hosts = [Target(f"h{i}") for i in range(10)]
    assert [len(batch) for batch in batches(hosts, size)] == sizes
