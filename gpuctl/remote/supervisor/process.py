"""One program in a pod: begun in a session of its own, heard, and ended with all that it started.

A mark in the environment of its processes finds those, too, that left its group (ssh, pdsh and mpirun do).
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import time
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import process_tree

MARK = "PYTHON_GPUCTL_PROGRAM"  # DeepSpeed hands variables that begin with PYTHON on to the other pods
PART = 1 << 16
REST_S = 2.0  # for what is still printed once all of it has ended
PATIENCE_S = 10.0


class NoStart(Exception):
    """The program cannot be started; the text says why."""


class Child:
    """A program that runs. `out` is where to read what it prints, errors among the rest in their order."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.grace_s = float(order["grace_s"])
        self.mark = variable(order["token"])
        self.told_s = 0.0
        self.status: int | None = None
        self.pid, self.out = _started(order)

    def read(self) -> bytes:
        """What it printed; empty where there is nothing now."""
        try:
            return os.read(self.out, PART)
        except OSError:
            return b""

    def has_printed(self, wait_s: float) -> bool:
        return bool(select.select([self.out], [], [], wait_s)[0])

    def has_ended(self) -> bool:
        """Whether its first process has."""
        if self.status is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = status if pid else None
        return self.status is not None

    def tell_to_end(self) -> None:
        """Ask all of it to end, once."""
        if self.told_s:
            return
        self.told_s = time.monotonic()
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGTERM)
        for pid in process_tree.marked(self.mark):
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.pid:
                    os.kill(pid, signal.SIGTERM)

    def is_over(self) -> bool:
        """Whether nothing is to be waited for: it ended by itself, or all did, or the time to do so is over."""
        ended = self.has_ended()
        if not self.told_s:
            return ended
        return (ended and not process_tree.marked(self.mark)) or time.monotonic() - self.told_s > self.grace_s

    def finish(self) -> tuple[dict[str, Any], bytes]:
        """End what is left of it: how it ended, and the last that it printed."""
        with contextlib.suppress(OSError):
            if not self.has_ended():
                os.killpg(self.pid, signal.SIGKILL)
        left = process_tree.end(self.mark, PATIENCE_S)
        rest, end = [], time.monotonic() + REST_S
        while time.monotonic() < end and self.has_printed(0.1):
            rest.append(self.read())
            if not rest[-1]:
                break
        told: dict[str, Any] = {
            "code": None,
            "signal": None,
            "asked": bool(self.told_s),
            "left": [str(each["name"]) for each in left],
        }
        if self.has_ended() and self.status is not None:
            told.update(ending_of(self.status))
        else:
            told["left"] = told["left"] or ["its first process"]
        return told, b"".join(rest)


def ending_of(status: int) -> dict[str, int]:
    """How a process ended."""
    return {"code": os.WEXITSTATUS(status)} if os.WIFEXITED(status) else {"signal": os.WTERMSIG(status)}


def variable(token: str) -> bytes:
    """What stands in the environment of all that belongs to a program."""
    return f"{MARK}={token}".encode()


def environment(order: dict[str, Any]) -> dict[str, str]:
    """The container's, what the pod's start says of this pod, and what was asked for."""
    return {**os.environ, **said(Path(order["says"])), **order["env"], MARK: order["token"]}


def said(path: Path) -> dict[str, str]:
    """Variables from a file of lines such as: export NODE_RANK=1."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for word in shlex.split(path.read_text(), comments=True):
            name, equals, value = word.partition("=")
            if equals:
                found[name] = value
    return found


def _started(order: dict[str, Any]) -> tuple[int, int]:
    """Its process and its output; `NoStart` where the folder or the program is not there."""
    told, tell = os.pipe()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(order, into, tell)
    os.close(tell)
    os.close(into)
    wrong = b""
    while True:
        part = os.read(told, PART)
        if not part:
            break
        wrong += part
    os.close(told)
    if wrong:
        os.close(out)
        os.waitpid(pid, 0)
        raise NoStart(wrong.decode(errors="replace"))
    os.set_blocking(out, False)
    return pid, out


def _become(order: dict[str, Any], out: int, tell: int) -> None:
    """The new process; it never returns."""
    doing = ""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _end_with_us()
        if order["folder"]:
            doing = f"its folder {order['folder']}: "
            os.chdir(order["folder"])
        doing = f"{order['argv'][0]}: "
        os.execvpe(order["argv"][0], order["argv"], environment(order))  # noqa: S606 - a fixed list of arguments
    except OSError as error:
        os.write(tell, f"{doing}{error.strerror}".encode())
    finally:
        os._exit(127)


def _end_with_us() -> None:
    """Should this process be killed (memory!), its program is told to end; where Python has no ctypes, it is not."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG of linux/prctl.h
