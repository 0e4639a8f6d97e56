"""The argument list of a tmux command."""

from __future__ import annotations

import pytest

from gpuctl.edges.tmux import THEN, Server


@pytest.mark.parametrize(
    ("word", "passed"),
    [("plain", "plain"), ("a;b", "a;b"), ("build;", "build\\;"), (";", "\\;"), ("{} \\;", "{} \\\\;"), ("", "")],
)
def test_an_argument_never_ends_the_command(word: str, passed: str) -> None:
    assert Server("own").argv("rename-window", word)[-2:] == ["rename-window", passed]


def test_two_commands_run_in_one_call() -> None:
    assert Server("own").argv("list-keys", THEN, "list-panes")[-3:] == ["list-keys", ";", "list-panes"]
