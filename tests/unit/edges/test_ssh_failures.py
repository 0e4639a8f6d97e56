"""Messages of ssh, sudo and shells as failures with a hint."""

from __future__ import annotations

import pytest

from gpuctl.edges.processes import Done
from gpuctl.edges.ssh import Login, explain

CHANGED = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n…\nHost key verification failed.\n"
UNKNOWN = "No ED25519 host key is known for gpu-1 …\r\nHost key verification failed.\r\n"
CASES = {
    CHANGED: "its host key has changed",
    UNKNOWN: "its host key is not known",
    "root@10.77.1.1: Permission denied (publickey).\r\n": "it does not let us log in",
    "sudo: a password is required\n": "sudo wants a password",
    "sudo: sorry, user nosudo may not run sudo on h1.\n": "this user has no permission to use sudo",
    "ssh: Could not resolve hostname gpu-x: Name or service not known\r\n": "its name cannot be resolved",
    "ssh: connect to host 10.77.9.9 port 22: No route to host\r\n": "it cannot be reached",
    "ssh: connect to host 10.77.9.9 port 22: Connection timed out\r\n": "it cannot be reached",
    "gpuctl-no-python\n": "it has no Python",
    "Timeout, server 10.77.9.9 not responding.\r\n": "the connection was lost",
    "client_loop: send disconnect: Broken pipe\r\n": "the connection was lost",
    "Connection to 10.77.9.9 closed by remote host.\r\n": "the connection was lost",
}


@pytest.mark.parametrize(("stderr", "wrong"), CASES.items())
def test_a_known_failure_gets_a_message_and_a_hint(stderr: str, wrong: str) -> None:
    failure = explain(Login("gpu-1"), Done(255, b"", stderr), limit=60)
    assert failure.wrong.startswith(wrong)
    assert failure.hint


def test_a_hang_names_the_limit() -> None:
    assert explain(Login("gpu-1"), Done(None, b"", ""), limit=60).wrong == "it gave no answer within 60 s"


def test_an_unknown_failure_keeps_the_last_line() -> None:
    assert explain(Login("gpu-1"), Done(1, b"", "first\nsomething odd\n"), limit=60).wrong == "something odd"


def test_a_crash_of_gpuctl_on_the_host_is_reported_as_one() -> None:
    stderr = "Traceback (most recent call last):\n  File …\nKeyError: 'python'\n"
    failure = explain(Login("gpu-1"), Done(1, b"", stderr), limit=60)
    assert failure.wrong == "gpuctl itself failed on the host: KeyError: 'python'"


@pytest.mark.parametrize(
    ("login", "code"),
    [(Login("gpu-1"), 255), (Login("gpu-1"), 137), (Login("localhost", local=True), -9), (Login("", local=True), 137)],
)
def test_a_program_that_was_killed_on_the_host_does_not_make_it_unreachable(login: Login, code: int) -> None:
    failure = explain(
        login, Done(code, b"", "Warning: Permanently added gpu-1 to the list of known hosts.\n"), limit=60
    )
    assert failure.wrong.startswith("our program was killed on the host")
    assert not failure.unreachable


@pytest.mark.parametrize(
    ("code", "stderr"),
    [
        (1, "boom \x1b]0;title\x07\n"),
        (255, "\x1b]0;title\x07: Connection reset by peer\n"),
        (127, "\x1b]0;title\x07 not found\n"),
        (1, "Traceback (most recent call last):\nKeyError: '\x1b]0;title\x07'\n"),
    ],
)
def test_escape_sequences_of_a_host_are_spelt_out(code: int, stderr: str) -> None:
    for login in (Login("gpu-1"), Login("gpu-1", python="/opt/python")):
        assert r"\x1b]0;title\x07" in explain(login, Done(code, b"", stderr), limit=60).wrong
