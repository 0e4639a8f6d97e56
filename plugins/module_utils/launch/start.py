"""Runs on the first node of a launch: starts mpirun or the test, and ends it when the reader disconnects.

It is also sent there as text (gpuctl/remote/payload.py), so it imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 8
MOST_OUTPUT = 32 * 2**20  # bytes of a captured run
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def main(request: dict[str, Any]) -> None:
    """Run `argv` with `env`; the last line, marked, has the outcome: {code}, {signal} or {missing}.

    Request: mark, argv ("{program}" is replaced by the test's path), env, program (the test's file name), folders (to
    search first for the test and mpirun; all must exist), usual (folders to search after the PATH), passed (prefixes
    of existing variables that mpirun passes to every rank), and stop_on_input (our input stays open while the reader
    is connected; any input, or its end, ends the run).
    """
    missing, argv = resolve(request)
    if missing:
        print_answer(request["mark"], {"missing": missing})
        return
    argv[1:1] = passed(request)
    print_answer(request["mark"], run(argv, dict(os.environ, **request["env"]), request.get("stop_on_input", False)))


def passed(request: dict[str, Any]) -> list[str]:
    """Arguments of mpirun that pass variables of this node's environment on, except those in `env`."""
    prefixes = tuple(request.get("passed", ())) if request["argv"][0] == "mpirun" else ()
    names = sorted(name for name in os.environ if name.startswith(prefixes) and name not in request["env"])
    return [argument for name in names for argument in ("-x", name)] if prefixes else []


def resolve(request: dict[str, Any]) -> tuple[str, list[str]]:
    """(the first missing folder or program, or "", the arguments with the paths of the programs)."""
    program, first = (find(name, request) for name in (request["program"], request["argv"][0]))
    missing = [folder for folder in request["folders"] if not Path(folder).expanduser().is_dir()]
    missing += [name for name, path in ((request["program"], program), (request["argv"][0], first)) if not path]
    # Started by its absolute path, Open MPI also finds its parts on the other nodes.
    return "".join(missing[:1]), [first] + [program if text == "{program}" else text for text in request["argv"][1:]]


def find(name: str, request: dict[str, Any]) -> str:
    """The path of a program; "" if there is none."""
    for folder in request["folders"] + os.environ.get("PATH", os.defpath).split(os.pathsep) + request["usual"]:
        path = Path(folder).expanduser() / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return ""


def print_answer(mark: str, answer: dict[str, object]) -> None:
    """Print the marked line, on a line of its own even if the program did not finish its last one."""
    sys.stdout.write("\n" + mark + json.dumps(answer) + "\n")
    sys.stdout.flush()


def run(argv: list[str], environment: dict[str, str], stop_on_input: bool = False) -> dict[str, object]:
    """Run a program until it ends, we get a signal or input, or the reader of its output disconnects."""
    signals_received: list[int] = []
    for number in ENDING:
        signal.signal(number, lambda number, _: signals_received.append(number))
    child = begin(argv, environment)
    listener = select.poll()
    listener.register(1, 0)  # errors only: the reader has disconnected
    if stop_on_input:
        listener.register(0, select.POLLIN)
    asked_to_end = 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return outcome(status)
        if not asked_to_end and (signals_received or listener.poll(0)):
            asked_to_end = time.monotonic()
            send(child, signal.SIGTERM)  # on which mpirun ends its ranks on every node
        if asked_to_end and time.monotonic() - asked_to_end > PATIENCE_S:
            send(child, signal.SIGKILL)
        time.sleep(0.05)


def run_captured(request: dict[str, Any], limit_s: float) -> dict[str, object]:
    """Run with captured output: {text} and {code} or {signal}; {late} if it still runs after the limit.

    {excess} if it was stopped because it printed more than MOST_OUTPUT; the text is then its beginning.
    """
    missing, argv = resolve(request)
    if missing:
        return {"missing": missing}
    with tempfile.TemporaryFile() as text:
        child = begin(argv, dict(os.environ, **request["env"]), text.fileno())
        end, pid, excess = time.monotonic() + limit_s, 0, False
        while not pid and not excess and time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.05)
            excess = os.fstat(text.fileno()).st_size > MOST_OUTPUT
        if excess and not pid:
            stop(child)
        beginning = os.pread(text.fileno(), MOST_OUTPUT, 0).decode(errors="replace")
    if excess:
        return {"text": beginning, "excess": True}
    return dict({"text": beginning}, **(outcome(status) if pid else {"late": True}))


def stop(child: int) -> None:
    """End a child with its process group, and wait for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        send(child, number)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
            time.sleep(0.05)


def outcome(status: int) -> dict[str, object]:
    """{code} or {signal} of a wait status."""
    return {"code": os.WEXITSTATUS(status)} if os.WIFEXITED(status) else {"signal": os.WTERMSIG(status)}


def send(child: int, number: int) -> None:
    """Signal a child that has not been waited for, with its process group; one that has only begun has none yet."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(child, number)
        except ProcessLookupError:
            os.kill(child, number)


def begin(argv: list[str], environment: dict[str, str], out: int = 1) -> int:
    """Start a program; returns its process id. A signal that comes before the program is there ends it, too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    child = os.fork()
    if child == 0:
        become(argv, environment, out)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def become(argv: list[str], environment: dict[str, str], out: int) -> None:
    """Exec in the forked child: own process group, no input, stderr merged into stdout."""
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(1, 2)
        for number in (*ENDING, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.execve(argv[0], argv, environment)  # noqa: S606 - a fixed list of arguments
    finally:
        os._exit(126)
