"""Run several programs in a pod concurrently, each within a time limit."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_OUTPUT = 4 << 20  # bytes of one program's output
SLICE_S = 1.0
UNKILLABLE_S = 2.0  # a process blocked in the kernel (nvidia-smi with a broken GPU) survives even SIGKILL


def run_programs(
    commands: dict[str, list[str]], limit_s: float, meanwhile: Callable[[], object] = lambda: None
) -> dict[str, dict[str, Any]]:
    """Return {code, text} by name. `meanwhile` is called at least once a second.

    Programs that are late or print more than MAX_OUTPUT are killed. If `code` is None, `why` is the reason: "none" (no
    such program), "late" or "excess"; the text is then not the whole output.
    """
    results: dict[str, dict[str, Any]] = {}
    running = {}
    for name, argv in commands.items():
        path = shutil.which(argv[0])
        if path is None:
            results[name] = {"code": None, "why": "none", "text": ""}
        else:
            pid, out = _start(path, argv)
            running[out] = (name, pid, bytearray())
    end = time.monotonic() + limit_s
    try:
        while running and time.monotonic() < end:
            meanwhile()
            for out in select.select(list(running), [], [], max(0.0, min(SLICE_S, end - time.monotonic())))[0]:
                name, pid, text = running[out]
                part = os.read(out, 1 << 16)
                excess = len(text) + len(part) > MAX_OUTPUT
                text.extend(b"" if excess else part)
                if excess or not part:
                    del running[out]
                    os.close(out)
                    code = _wait(pid, 0 if excess else end)
                    results[name] = _result(None if excess else code, text, "excess" if excess else "late")
    finally:
        for name, pid, text in running.values():
            results[name] = _result(_wait(pid, 0), text, "late")
    return results


def _result(code: int | None, text: bytearray, why: str) -> dict[str, Any]:
    result = {"code": code, "text": text.decode(errors="replace")}
    return result if code is not None else dict(result, why=why)


def _start(path: str, argv: list[str]) -> tuple[int, int]:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(into, 1)
            os.dup2(into, 2)
            os.execv(path, argv)  # noqa: S606 - a fixed list of arguments
        finally:
            os._exit(126)
    os.close(into)
    return pid, out


def _wait(pid: int, end: float) -> int | None:
    """Return the exit code (128 and more for a signal), or None if the program had to be killed."""
    killed_s = 0.0
    while not killed_s or time.monotonic() - killed_s < UNKILLABLE_S:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            return None if killed_s else code
        if not killed_s and time.monotonic() > end:
            killed_s = time.monotonic()
            for kill in (os.killpg, os.kill):  # one that has only just begun has no group yet
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return None
