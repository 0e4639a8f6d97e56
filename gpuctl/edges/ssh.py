"""The user's own OpenSSH client as a transport: one connection per host, the program arrives on standard input.

ssh from node to node is configured elsewhere: launch/mpirun_command.py and gpuhost/facts/reach.py in
plugins/module_utils for hosts, nccl/runners/kube/scripts.py and cluster/manifests/scripts.py for pods.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuctl.edges.processes import Done, Processes, SecondTurn
from gpuctl.engine import any_python, printable, python_arguments, visit_failures

CONNECT_SECONDS = 10
LOOK = "log in by hand and look"
NO_ANSWER = "it gave no answer within"  # how messages of an expired time limit begin
LOST = "the connection was lost"
# The exit status of ssh for its own errors, which it explains, and for a program that a signal ended, without a word.
SSH_FAILED = 255
SHELL_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Login:
    """Login data of one host; empty fields follow the user's own ssh configuration. `args`: more of ssh."""

    address: str
    port: int | None = None
    user: str = ""
    key: str = ""
    args: tuple[str, ...] = ()
    sudo_to: str = ""
    python: str = ""
    local: bool = False


@dataclass(frozen=True)
class Failure:
    """Reason why a host gave no answer, and a hint."""

    wrong: str
    hint: str = ""
    unreachable: bool = False  # nothing ran on the host, as far as we know


def run_python(processes: Processes, login: Login, program: Callable[[], bytes], limit: float) -> bytes | Failure:
    """Run a Python program on a host; return its standard output, or the failure.

    `program` is called once ssh runs, so that the text is built while the connection opens.
    """
    _, output = run_in_turns(processes, login, program, limit, None)
    return output


def run_in_turns(
    processes: Processes, login: Login, program: Callable[[], bytes], limit: float, second: SecondTurn | None
) -> tuple[bool, bytes | Failure]:
    """Like `run_python`, with more input for a program that stays (see payload.py) and its output after that.

    Also returns whether the second input was sent.
    """
    try:
        done = processes.run(command(login, stays=second is not None), program, limit, second=second)
    except OSError as error:
        hint = "set ansible_python_interpreter to one it has" if login.local else "install the OpenSSH client"
        return False, Failure(f"cannot start {error.filename}: {error.strerror}", hint)
    return bool(done.first), done.out[done.first :] if done.code == 0 else explain(login, done, done.limit)


def command(login: Login, *, stays: bool = False) -> Sequence[str]:
    """The argument list that runs a program from standard input on a host's Python; `stays`: as in payload.py."""
    sudo = ["sudo", "-n", "-H", "-u", login.sudo_to, "--"] if login.sudo_to else []
    arguments = python_arguments(stays=stays)
    if login.local:
        return [*sudo, *(shlex.split(login.python) or [sys.executable]), *arguments]
    start = (
        shlex.join([*sudo, *shlex.split(login.python), *arguments])
        if login.python
        else any_python(shlex.join(sudo), stays=stays)
    )
    return ["ssh", "-T", *_connection(login, "BatchMode=yes"), "--", login.address, start]


def program(login: Login, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
    """The argument list that runs a program on a host; none starts the login shell.

    `terminal`: on a terminal of its own, so that ssh itself may ask for a password, too.
    """
    sudo = ["sudo", *(() if terminal else ("-n",)), "-H", "-u", login.sudo_to, "--"] if login.sudo_to else []
    words = [*sudo, *argv] if argv else []
    if login.local:
        return words or [os.environ.get("SHELL") or "/bin/sh"]
    asks = () if terminal else ("BatchMode=yes",)
    return ["ssh", "-t" if terminal else "-T", *_connection(login, *asks), "--", login.address, *_joined(words)]


def _joined(words: Sequence[str]) -> list[str]:
    """One argument, which the shell of the host splits as it was."""
    return [shlex.join(words)] if words else []


def _connection(login: Login, *more: str) -> list[str]:
    """Options of ssh that lead to a host. The user's come first: OpenSSH uses the first value of an option."""
    options = [*more, f"ConnectTimeout={CONNECT_SECONDS}", "ServerAliveInterval=15"]
    port = ["-p", str(login.port)] if login.port else []
    user = ["-l", login.user] if login.user else []
    key = ["-i", login.key, "-o", "IdentitiesOnly=yes"] if login.key else []
    return [*login.args, *(word for option in options for word in ("-o", option)), *port, *user, *key]


# Messages of ssh, sudo and the shell, the most specific first: pattern, our message, hint.
_KNOWN = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed",
        "find out why before you trust it; then run `ssh-keygen -R ADDRESS` and log in once by hand",
    ),
    (
        r"Host key verification failed",
        "its host key is not known",
        "log in once by hand with ssh, or add its key to known_hosts",
    ),
    (
        r"Permission denied",
        "it does not let us log in",
        "check ansible_user and the key; gpuctl asks for no password",
    ),
    (
        r"sudo: .*(password|terminal)",
        "sudo wants a password",
        "give this user sudo with NOPASSWD, or set ansible_become_password: Ansible then reaches the host",
    ),
    (
        r"not in the sudoers|may not run sudo|not allowed to (execute|run)",
        "this user has no permission to use sudo",
        "log in as another user",
    ),
    (
        r"sudo: (command )?not found|exec: sudo: not found",
        "sudo is not installed",
        "log in as root, or install sudo",
    ),
    (
        rf"Timeout, server .* {visit_failures.UNRESPONSIVE}|Broken pipe|closed by remote host",
        LOST,
        "is it up, and does the network work?",
    ),
    (r"gpuctl-no-python", "it has no Python", "install python3 there"),
    (r"Could not resolve hostname", "its name cannot be resolved", "set ansible_host to an address"),
    (
        r"Connection refused|No route to host|Network is unreachable|timed out|Connection closed|Connection reset",
        "it cannot be reached",
        "is it up, and does sshd run on it?",
    ),
)


def known_failure(output: str, last: str, address: str) -> Failure | None:
    """Recognise a failure in the output of ssh, sudo or a shell; None if it is unknown. `last`: the line to quote."""
    for pattern, wrong, hint in _KNOWN:
        if re.search(pattern, output):
            return Failure(f"{wrong} ({last})", hint.replace("ADDRESS", address))
    return None


def explain(login: Login, done: Done, limit: float) -> Failure:
    """Explain a failure from the output of ssh, sudo, the shell or our program."""
    if done.excess:
        return Failure(visit_failures.TOO_MUCH_OUTPUT, visit_failures.PRINTS_ENDLESSLY)
    if done.code is None:
        return Failure(f"{NO_ANSWER} {limit:g} s", f"{LOOK}; --timeout allows more time", unreachable=True)
    lines = [
        line for line in done.err.splitlines() if line.strip() and not line.startswith("Warning: Permanently added")
    ]
    if _was_killed(login, done.code, lines):
        return Failure(visit_failures.KILLED, visit_failures.COMPLETES)
    unreachable = done.code == SSH_FAILED and not login.local
    last = printable(lines[-1].strip()) if lines else f"exit status {done.code}"
    if "Traceback (most recent call last)" in done.err:
        return Failure(f"gpuctl itself failed on the host: {last}", "please report it")
    known = known_failure(done.err, last, login.address)
    if known is None and done.code == 127 and login.python:
        return Failure(f"it has no {login.python} ({last})", "set ansible_python_interpreter to one it has")
    return replace(known or Failure(last, LOOK if not login.local else ""), unreachable=unreachable)


def _was_killed(login: Login, code: int, messages: Sequence[str]) -> bool:
    """True if a signal ended our program, rather than ssh or the program itself."""
    if login.local:
        return code < 0 or code == SHELL_KILLED
    return code == SHELL_KILLED or (code == SSH_FAILED and not messages)
