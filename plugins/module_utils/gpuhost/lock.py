"""One run at a time on a host: a lock that the kernel releases when its holder dies.

The lock's file names the run that holds it, and afterwards the last run that ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping

from .host import Host

FOLDER = "/run/gpuctl"


class Locked(Exception):
    """Another run holds the lock; the message names its user and start time."""


NO_RUN = ""  # since the boot


def last_run(host: Host) -> str | None:
    """Identity of the last run that ended since the boot; None if one is at work, or was killed."""
    return _ended(host.read_or_none(f"{FOLDER}/lock"))


def _ended(text: str | None) -> str | None:
    if text is None:
        return NO_RUN
    try:
        return str(json.loads(text)["last_run"])
    except (ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def lock(host: Host, by: str) -> Iterator[str | None]:
    """Hold the host's lock, and give the run before this one as `last_run` does.

    Raise `Locked` without waiting if another run holds it.
    """
    host.make_private_folder(FOLDER)
    descriptor, is_new = _open(host.real(f"{FOLDER}/lock"))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(_holder(os.pread(descriptor, 4096, 0))) from None
        earlier = _ended(None if is_new else os.pread(descriptor, 4096, 0).decode(errors="replace"))
        holder = {"by": by, "pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        _write(descriptor, holder)
        with _undisturbed():
            yield earlier
        _write(descriptor, {"last_run": f"{os.getpid()} {time.monotonic_ns()}"})
    finally:
        os.close(descriptor)


def _open(path: str) -> tuple[int, bool]:
    """(descriptor, whether the file is new)."""
    flags = os.O_RDWR | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileExistsError:
        return os.open(path, flags), False


def _write(descriptor: int, content: Mapping[str, object]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(content).encode(), 0)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals between two changes, so that the run is completed and its record closed; SIGKILL still works."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    # A handler without effect: SIG_IGN would be inherited by every program we start.
    before = [(number, signal.signal(number, lambda *_: None)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _holder(text: bytes) -> str:
    try:
        holder = json.loads(text)
        return f"{holder['by']} has been at work on this host since {holder['since']} (process {holder['pid']})"
    except (ValueError, KeyError):
        return "another run has just started on this host"
