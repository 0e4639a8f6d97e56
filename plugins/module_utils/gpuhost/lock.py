"""One run at a time on a host: a lock that the kernel releases when its holder dies.

The lock's file names the run that holds it, and afterwards the last run that ended. The programs that put settings
back at boot share the lock among themselves: a run waits for them, and they leave a run alone.
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
PATIENCE_S = 300.0  # a boot program's unit ends after that time


class Locked(Exception):
    """Another run holds the lock; the message names its user and start time."""


class NoLock(Exception):
    """The lock's file cannot be made, such as on a full or read-only /run."""


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

    Raise `Locked` without waiting if another run holds it; wait for boot programs.
    """
    host.make_private_folder(FOLDER)
    descriptor, is_new = _open(host.real(f"{FOLDER}/lock"))
    try:
        _take(descriptor)
        earlier = _ended(None if is_new else os.pread(descriptor, 4096, 0).decode(errors="replace"))
        holder = {"by": by, "pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        _write(descriptor, holder)
        with _undisturbed():
            yield earlier
        _write(descriptor, {"last_run": f"{os.getpid()} {time.monotonic_ns()}"})
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while not _flock(descriptor, fcntl.LOCK_EX):
        if not _flock(descriptor, fcntl.LOCK_SH):
            raise Locked(_holder(os.pread(descriptor, 4096, 0)))
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # only boot programs hold it
        if time.monotonic() > end:
            raise Locked(f"a boot program of gpuctl has been at work on this host for {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def _flock(descriptor: int, operation: int) -> bool:
    """False if a holder prevents it."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def hold_off_runs(host: Host) -> Iterator[bool]:
    """Keep runs from starting while a boot program sets values; gives False if a run is at work now.

    `NoLock` if the lock's file cannot be made. Without waiting: systemd starts other units after the boot program,
    and the run may wait for one of these.
    """
    try:
        host.make_private_folder(FOLDER)
        descriptor, is_new = _open(host.real(f"{FOLDER}/lock"))
    except OSError as error:
        raise NoLock(str(error)) from error
    try:
        may = _flock(descriptor, fcntl.LOCK_SH)
        if may and is_new:
            _write(descriptor, {"last_run": NO_RUN})
        yield may
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
