"""What visits come to: words and exit codes."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.hosts.flow import batches
from gpuctl.hosts.judge import exit_code, status
from gpuctl.hosts.model import Target, Visit


def visit(*states: str, changed: bool = False) -> Visit:
    """A host whose knobs are in these states."""
    knobs: list[dict[str, Any]] = [
        {"knob": f"k{i}", "state": s, "changed": changed, "reboot": True} for i, s in enumerate(states)
    ]
    return Visit("h", answer={"knobs": knobs})


SILENT = Visit("h", wrong="it cannot be reached", unreachable=True)
LOCKED = Visit("h", wrong="another run is at work on this host")


@pytest.mark.parametrize(
    ("seen", "word", "tune", "drift"),
    [
        (visit("ok"), "ok", 0, 0),
        (visit("ok", changed=True), "changed", 0, 0),
        (visit("ok", "differs"), "differs", 0, 1),
        (visit("ok", "pending"), "needs a reboot", 0, 1),
        (visit("ok", "unsupported"), "ok", 0, 0),
        (visit("unknown"), "problems", 1, 1),
        (visit("refused"), "problems", 1, 1),
        (visit("contested"), "problems", 1, 1),
        (visit("conflict"), "problems", 1, 1),
        (visit("failed", changed=True), "problems", 1, 1),
        (SILENT, "unreachable", 3, 3),
        (LOCKED, "failed", 3, 3),
    ],
)
def test_a_host_in_one_word_and_one_code(seen: Visit, word: str, tune: int, drift: int) -> None:
    assert status(seen) == word
    assert exit_code([seen]) == tune
    assert exit_code([seen], drift=True) == drift


def test_strict_makes_unsupported_a_problem() -> None:
    assert exit_code([visit("unsupported")], strict=True) == 1


def test_the_worst_host_decides() -> None:
    assert exit_code([visit("ok"), visit("failed"), SILENT]) == 3


@pytest.mark.parametrize(
    ("size", "sizes"), [("100%", [10]), ("3", [3, 3, 3, 1]), ("25%", [2, 2, 2, 2, 2]), ("1%", [1] * 10)]
)
def test_batches_by_number_and_share(size: str, sizes: list[int]) -> None:
    hosts = [Target(f"h{i}") for i in range(10)]
    assert [len(batch) for batch in batches(hosts, size)] == sizes
