"""The marked lines stand once, in their place, and what is around them stays."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.shell import BEGIN, block, with_block


def test_they_come_after_the_last_line_even_where_it_has_no_end() -> None:
    assert with_block("alias ll=ls", "B\n") == "alias ll=ls\nB\n"


def test_a_second_time_changes_nothing() -> None:
    once = with_block("mine\n", block("bash", "/b", False))
    assert with_block(once, block("bash", "/b", False)) == once


def test_a_new_version_takes_the_place_of_the_old_one() -> None:
    text = with_block("before\n", block("zsh", "/old", False)) + "after\n"
    renewed = with_block(text, block("zsh", "/new", False))
    assert renewed.startswith("before\n" + BEGIN)
    assert renewed.endswith("after\n")
    assert "/old" not in renewed


def test_tmux_starts_with_a_terminal_only_where_that_is_wished() -> None:
    assert "gpuctl tmux launch" not in block("bash", "/b", False)
    assert "gpuctl tmux launch" in block("bash", "/b", True)


@pytest.mark.parametrize("start_tmux", [False, True])
def test_bash_takes_the_lines_and_puts_the_folder_on_the_path_once(start_tmux: bool) -> None:
    twice = block("bash", "/my/bin", start_tmux) * 2
    done = subprocess.run(["bash", "-euc", twice + 'echo "$PATH"'], capture_output=True, text=True, check=True)
    assert done.stdout.split(":").count("/my/bin") == 1
