"""Runs on the first node of a launch: starts mpirun or the test, and takes it along when nobody listens any more.

It is also carried there as a text (gpuctl/remote/payload.py), so it imports nothing of ours.
"""

from __future__ import annotations

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


def main(request: dict[str, Any]) -> None:
    """Run `argv` with `env`; the last line, marked, tells how it ended: {code}, {signal} or {missing}.

    asked: mark, argv, env, program (the test's file name), folders (where it and mpirun are looked for first; each has
    to be there) and usual (where they are after the PATH). In argv "{program}" becomes the test's path. Where it has
    passed, mpirun gives every rank also the variables that are there already and whose names begin so. Where held is
    true, our input stays open as long as somebody listens, and anything that comes there tells us to end.
    """
    missing, argv = resolve(request)
    if missing:
        say(request["mark"], {"missing": missing})
        return
    argv[1:1] = passed(request)
    say(request["mark"], run(argv, dict(os.environ, **request["env"]), request.get("held", False)))


def passed(request: dict[str, Any]) -> list[str]:
    """The words for mpirun that pass on what this node's own environment has; what is asked for anyway is not among."""
    begins = tuple(request.get("passed", ())) if request["argv"][0] == "mpirun" else ()
    names = sorted(name for name in os.environ if name.startswith(begins) and name not in request["env"])
    return [word for name in names for word in ("-x", name)] if begins else []


def resolve(request: dict[str, Any]) -> tuple[str, list[str]]:
    """The first folder or program that is not there, or "", and the arguments with the paths of those that are."""
    program, first = (find(name, request) for name in (request["program"], request["argv"][0]))
    missing = [folder for folder in request["folders"] if not Path(folder).expanduser().is_dir()]
    missing += [name for name, path in ((request["program"], program), (request["argv"][0], first)) if not path]
    # By its whole path Open MPI also finds its own parts on the other nodes.
    return "".join(missing[:1]), [first] + [program if word == "{program}" else word for word in request["argv"][1:]]


def find(name: str, request: dict[str, Any]) -> str:
    """The path of a program; "" where there is none."""
    for folder in request["folders"] + os.environ.get("PATH", os.defpath).split(os.pathsep) + request["usual"]:
        path = Path(folder).expanduser() / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return ""


def say(mark: str, what: dict[str, object]) -> None:
    """Our own line, after whatever the program left unfinished."""
    sys.stdout.write("\n" + mark + json.dumps(what) + "\n")
    sys.stdout.flush()


def run(argv: list[str], environment: dict[str, str], input_open: bool = False) -> dict[str, object]:
    """Run it to its end, or until we are told to end or nobody reads what it prints."""
    signals_received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: signals_received.append(number))
    child = os.fork()
    if child == 0:
        become(argv, environment)
    listener = select.poll()
    listener.register(1, 0)  # errors only: it is the reader's going that we wait for
    if input_open:
        listener.register(0, select.POLLIN)
    asked_to_end = 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return ending(status)
        if not asked_to_end and (signals_received or listener.poll(0)):
            asked_to_end = time.monotonic()
            os.killpg(child, signal.SIGTERM)  # mpirun ends its ranks on every node
        if asked_to_end and time.monotonic() - asked_to_end > PATIENCE_S:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)


def kept(request: dict[str, Any], limit_s: float) -> dict[str, object]:
    """Run it with its output kept: {text} with {code}, {signal}, or {late} where it has not ended and is left so."""
    missing, argv = resolve(request)
    if missing:
        return {"missing": missing}
    with tempfile.TemporaryFile() as text:
        child = os.fork()
        if child == 0:
            os.dup2(text.fileno(), 1)
            become(argv, dict(os.environ, **request["env"]))
        end, pid = time.monotonic() + limit_s, 0
        while not pid and time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.05)
        text.seek(0)
        result = {"text": text.read().decode(errors="replace")}
    return dict(result, **(ending(status) if pid else {"late": True}))


def ending(status: int) -> dict[str, object]:
    """How a process ended."""
    return {"code": os.WEXITSTATUS(status)} if os.WIFEXITED(status) else {"signal": os.WTERMSIG(status)}


def become(argv: list[str], environment: dict[str, str]) -> None:
    """The new process: a group of its own, nothing to read, errors among the output in their order."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(1, 2)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)  # noqa: S606 - a fixed list of arguments
    finally:
        os._exit(126)
