"""Programs over ssh: arguments reach them as they are, and only a terminal may ask questions."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from gpuctl.edges.ssh import Login, program

WORDS = ["sh", "-c", "printf '%s|' \"$@\"", "x", "a b", "$HOME", "it's", "--", "*"]


def test_a_shell_of_the_host_splits_the_words_as_they_were() -> None:
    argv = program(Login("gpu-1", user="alice"), WORDS)
    assert shlex.split(argv[-1]) == WORDS
    done = subprocess.run(["/bin/sh", "-c", argv[-1]], capture_output=True, text=True, check=True)
    assert done.stdout == "a b|$HOME|it's|--|*|"


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_may_ask_for_a_password(terminal: bool) -> None:
    argv = program(Login("gpu-1", sudo_to="root", args=("-o", "Port=7")), ["id"], terminal=terminal)
    assert ("BatchMode=yes" in argv, argv[1]) == (not terminal, "-t" if terminal else "-T")
    assert argv[-1] == ("sudo -H -u root -- id" if terminal else "sudo -n -H -u root -- id")
    assert argv.index("Port=7") < argv.index("ServerAliveInterval=15")


def test_this_machine_needs_no_ssh_and_no_words_are_a_login() -> None:
    assert program(Login("localhost", local=True), ["id"]) == ["id"]
    assert program(Login("gpu-1"), [], terminal=True)[-2:] == ["--", "gpu-1"]
