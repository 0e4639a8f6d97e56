"""One program in a pod: started in its own session, read, and ended with everything it started.

A mark in the environment also finds processes that left its group (ssh, pdsh and mpirun do).
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

MARK = "PYTHON_GPUCTL_PROGRAM"  # DeepSpeed passes variables that begin with PYTHON to the other pods
PART = 1 << 16
DRAIN_S = 2.0  # for output that arrives after the last process ended
PATIENCE_S = 10.0


class StartFailed(Exception):
    """The program cannot be started; the text says why."""


class Child:
    """A running program. `out`: descriptor of its output, stdout and stderr interleaved."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.grace_s = float(order["grace_s"])
        self.mark = environment_entry(order["token"])
        self.terminated_at = 0.0
        self.status: int | None = None
        self.pid, self.out = _started(order)

    def read(self) -> bytes:
        """Return its output; empty if there is none now."""
        try:
            return os.read(self.out, PART)
        except OSError:
            return b""

    def has_printed(self, wait_s: float) -> bool:
        return bool(select.select([self.out], [], [], wait_s)[0])

    def is_finished(self) -> bool:
        """Return whether its first process has ended."""
        if self.status is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = status if pid else None
        return self.status is not None

    def terminate(self) -> None:
        """Send SIGTERM to all of its processes, once."""
        if self.terminated_at:
            return
        self.terminated_at = time.monotonic()
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGTERM)
        for pid in process_tree.marked(self.mark):
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.pid:
                    os.kill(pid, signal.SIGTERM)

    def is_over(self) -> bool:
        """Return whether nothing is left to wait for: it ended by itself, all of it did, or its time is over."""
        is_finished = self.is_finished()
        if not self.terminated_at:
            return is_finished
        return (
            is_finished and not process_tree.marked(self.mark)
        ) or time.monotonic() - self.terminated_at > self.grace_s

    def finish(self) -> tuple[dict[str, Any], bytes]:
        """Kill what is left of it; return its exit status and the last output."""
        with contextlib.suppress(OSError):
            if not self.is_finished():
                os.killpg(self.pid, signal.SIGKILL)
        left = process_tree.end(self.mark, PATIENCE_S)
        rest, end = [], time.monotonic() + DRAIN_S
        while time.monotonic() < end and self.has_printed(0.1):
            rest.append(self.read())
            if not rest[-1]:
                break
        status: dict[str, Any] = {
            "code": None,
            "signal": None,
            "requested": bool(self.terminated_at),
            "left": [str(process["name"]) for process in left],
        }
        if self.is_finished() and self.status is not None:
            status.update(exit_status(self.status))
        else:
            status["left"] = status["left"] or ["its first process"]
        return status, b"".join(rest)


def exit_status(status: int) -> dict[str, int]:
    """Decode the status that waitpid returned."""
    return {"code": os.WEXITSTATUS(status)} if os.WIFEXITED(status) else {"signal": os.WTERMSIG(status)}


def environment_entry(token: str) -> bytes:
    """Return the environment entry that marks every process of a program."""
    return f"{MARK}={token}".encode()


def environment(order: dict[str, Any]) -> dict[str, str]:
    """Return the container's environment, the pod's own variables, and the requested ones."""
    return {**os.environ, **read_env_file(Path(order["env_file"])), **order["env"], MARK: order["token"]}


def read_env_file(path: Path) -> dict[str, str]:
    """Read variables from lines such as `export NODE_RANK=1`."""
    variables = {}
    with contextlib.suppress(OSError, ValueError):
        for word in shlex.split(path.read_text(), comments=True):
            name, equals, value = word.partition("=")
            if equals:
                variables[name] = value
    return variables


def _started(order: dict[str, Any]) -> tuple[int, int]:
    """Start the process; return its pid and output. `StartFailed` if the folder or the program does not exist."""
    errors, report = os.pipe()
    out, output_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(order, output_end, report)
    os.close(report)
    os.close(output_end)
    wrong = b""
    while True:
        part = os.read(errors, PART)
        if not part:
            break
        wrong += part
    os.close(errors)
    if wrong:
        os.close(out)
        os.waitpid(pid, 0)
        raise StartFailed(wrong.decode(errors="replace"))
    os.set_blocking(out, False)
    return pid, out


def _become(order: dict[str, Any], out: int, report: int) -> None:
    """Turn the forked process into the program; never returns."""
    doing = ""
    try:
        if Path(order["env_file"]).exists():
            os.umask(0o002)  # pods of an environment share a group between both modes, not a user
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
        os.write(report, f"{doing}{error.strerror}".encode())
    finally:
        os._exit(127)


def _end_with_us() -> None:
    """If the supervisor is killed (out of memory), the kernel ends its program; not where Python has no ctypes."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG of linux/prctl.h
