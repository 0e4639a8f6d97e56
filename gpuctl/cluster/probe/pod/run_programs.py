"""Programs asked in a pod: several at the same time, each within its limit."""

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

MOST = 4 << 20  # bytes of an answer
SLICE_S = 1.0
UNKILLABLE_S = 2.0  # what hangs in the kernel, as nvidia-smi does with a broken GPU, does not even end then


def ask(
    asked: dict[str, list[str]], limit_s: float, meanwhile: Callable[[], object] = lambda: None
) -> dict[str, dict[str, Any]]:
    """By name: {code, text}; what is late is killed. `meanwhile` is called every second or more often.

    Where `code` is None `why` says it: "none" (there is no such program) or "late".
    """
    found: dict[str, dict[str, Any]] = {}
    running = {}
    for name, argv in asked.items():
        path = shutil.which(argv[0])
        if path is None:
            found[name] = {"code": None, "why": "none", "text": ""}
        else:
            pid, out = _start(path, argv)
            running[out] = (name, pid, bytearray())
    end = time.monotonic() + limit_s
    try:
        while running and time.monotonic() < end:
            meanwhile()
            for out in select.select(list(running), [], [], max(0.0, min(SLICE_S, end - time.monotonic())))[0]:
                part = os.read(out, 1 << 16)
                running[out][2].extend(part[: MOST - len(running[out][2])])
                if not part:
                    name, pid, text = running.pop(out)
                    os.close(out)
                    found[name] = _told(_ended(pid, end), text)
    finally:
        for name, pid, text in running.values():
            found[name] = _told(_ended(pid, 0), text)
    return found


def _told(code: int | None, text: bytearray) -> dict[str, Any]:
    said = {"code": code, "text": text.decode(errors="replace")}
    return said if code is not None else dict(said, why="late")


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


def _ended(pid: int, end: float) -> int | None:
    """Its exit code (128 and more for a signal), or None where it had to be killed, whether that helped or not."""
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
