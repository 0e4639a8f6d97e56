"""The marked lines stand once, in their folders, and what is around them stays."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import WorkstationError
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.shell import (
    BEGIN,
    END,
    block,
    with_block,
    without_block,
)

from tests.rig.command import GPUCTL
from tests.rig.needs import HOSTS, need


def test_the_block_follows_the_last_line_even_without_a_newline() -> None:
    assert with_block("alias ll=ls", "B\n") == "alias ll=ls\nB\n"


def test_writing_the_block_twice_changes_nothing() -> None:
    once = with_block("mine\n", block("bash", "/b", False))
    assert with_block(once, block("bash", "/b", False)) == once


def test_a_new_block_replaces_the_old_one() -> None:
    text = with_block("before\n", block("zsh", "/old", False)) + "after\n"
    renewed = with_block(text, block("zsh", "/new", False))
    assert renewed.startswith("before\n" + BEGIN)
    assert renewed.endswith("after\n")
    assert "/old" not in renewed


@pytest.mark.parametrize("text", ["{}", "mine\n{}", "before\n{}after\n", "{}after"])
def test_removing_the_block_leaves_the_users_lines_unchanged(text: str) -> None:
    assert without_block(text.format(f"{BEGIN}\nold\n{END}\n")) == text.format("")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"mine\n{BEGIN}\nmine, too\n", 2),
        (f"{BEGIN}\nold\nmine\n{BEGIN}\nold\n{END}\n", 1),
        (f"mine\n{END}\n{BEGIN}\nold\n{END}\n", 2),
        (f"{BEGIN}\nold\n{END}\nmine\n{END}", 5),
    ],
    ids=["no end", "two begins", "an end before", "an end after"],
)
def test_damaged_markers_are_reported_with_their_line_and_nothing_is_replaced(text: str, line: int) -> None:
    with pytest.raises(WorkstationError, match=rf"line {line} "):
        with_block(text, "B\n")


def test_a_marker_is_a_whole_line() -> None:
    text = f"echo '{BEGIN}'\n# not {END}\n"
    assert with_block(text, "B\n") == text + "B\n"


def test_several_whole_blocks_become_one() -> None:
    once = f"{BEGIN}\nold\n{END}\n"
    assert with_block(f"a\n{once}b\n{once}c\n", "B\n") == "a\nB\nb\nc\n"


def test_tmux_starts_with_a_terminal_only_on_request() -> None:
    assert "gpuctl tmux launch" not in block("bash", "/b", False)
    assert "gpuctl tmux launch" in block("bash", "/b", True)


@pytest.mark.parametrize("start_tmux", [False, True])
def test_bash_runs_the_block_and_adds_the_folder_to_path_once(start_tmux: bool) -> None:
    twice = block("bash", "/my/bin", start_tmux) * 2
    done = subprocess.run(["bash", "-euc", twice + 'echo "$PATH"'], capture_output=True, text=True, check=True)
    assert done.stdout.split(":").count("/my/bin") == 1


def started(tmp_path: Path, shell: str, **environment: str) -> bool:
    """Whether a new interactive shell on a terminal starts tmux."""
    stand_in = tmp_path / "gpuctl"
    stand_in.write_text('#!/bin/sh\necho "called: $*"\n')
    stand_in.chmod(0o755)
    rc = tmp_path / f".{shell}rc"
    rc.write_text(block(shell, str(tmp_path), True))
    fish = ["fish", "--no-config", "--interactive", "--init-command", f"source {rc}", "--command", "exit"]
    argv = {"bash": ["bash", "--rcfile", str(rc), "-ic", "exit"], "zsh": ["zsh", "-ic", "exit"], "fish": fish}[shell]
    ours, terminal = pty.openpty()
    variables = {"PATH": os.defpath, "HOME": str(tmp_path), "TERM": "dumb", **environment}
    try:
        done = subprocess.run(
            argv, stdin=terminal, env=variables, capture_output=True, text=True, check=True, timeout=30
        )
    finally:
        os.close(ours)
        os.close(terminal)
    return "called: tmux launch" in done.stdout


def require(shell: str) -> None:
    if not shutil.which(shell):
        need(f"the package {shell}", HOSTS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_new_terminal_starts_tmux(tmp_path: Path, shell: str) -> None:
    require(shell)
    assert started(tmp_path, shell)


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    "name", ["TERM_PROGRAM=vscode", "CURSOR_TRACE_ID=1f", "INSIDE_EMACS=29", "TMUX=/x,1,0", "GPUCTL_KUBECONFIG=/x"]
)
def test_editors_panes_and_smart_shells_do_not_start_tmux(tmp_path: Path, name: str, shell: str) -> None:
    require(shell)
    assert not started(tmp_path, shell, **dict([name.split("=")]))


def test_fish_completes_gpuctl_and_adds_the_folder_to_path_once(tmp_path: Path) -> None:
    require("fish")
    config = tmp_path / "config.fish"
    config.write_text(block("fish", str(GPUCTL.parent), False) * 2)
    ask = f"source {config}; complete --do-complete 'gpuctl tmux rollb'; echo $PATH"
    done = subprocess.run(
        ["fish", "--no-config", "--interactive", "--command", ask],
        env={"HOME": str(tmp_path), "PATH": os.defpath, "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("rollback\t"), done.stdout + done.stderr
    assert done.stdout.count(str(GPUCTL.parent)) == 1
