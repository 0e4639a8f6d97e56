"""Waiting names what is awaited and how long it usually takes, and ends at its limit."""

from __future__ import annotations

import pytest

from gpuctl.eks.wait import TimeUp, Wait, Waiter

WAIT = Wait("the control plane", "8 to 15 min", 600)


def waiter(lines: list[str]) -> Waiter:
    seconds = [0.0]

    def sleep(passed: float) -> None:
        seconds[0] += passed

    return Waiter(lines.append, sleep, lambda: seconds[0])


def test_a_line_at_the_start_one_a_minute_and_one_at_the_end() -> None:
    lines: list[str] = []
    polls = iter([None] * 15 + ["up"])
    assert waiter(lines).until(WAIT, lambda: (next(polls), "CREATING")) == "up"
    assert lines == [
        "waiting for the control plane (usually 8 to 15 min): CREATING",
        "waiting for the control plane, 60 s so far (usually 8 to 15 min): CREATING",
        "waiting for the control plane, 2 min so far (usually 8 to 15 min): CREATING",
        "the control plane: done after 2 min",
    ]


def test_what_is_there_at_once_prints_nothing() -> None:
    lines: list[str] = []
    assert waiter(lines).until(WAIT, lambda: (1, "")) == 1
    assert lines == []


def test_the_limit_is_an_error_that_names_the_state() -> None:
    with pytest.raises(TimeUp, match="cannot wait for the control plane: after 10 min it is still CREATING"):
        waiter([]).until(WAIT, lambda: (None, "CREATING"))
