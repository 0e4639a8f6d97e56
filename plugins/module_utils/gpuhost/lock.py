"""One run at a time on a host: a lock that the kernel releases when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator

from .host import Host

FOLDER = "/run/gpuctl"


class Locked(Exception):
    """Another run holds the lock; the message names its user and start time."""


@contextlib.contextmanager
def lock(host: Host, by: str) -> Iterator[None]:
    """Hold the host's lock; raise `Locked` without waiting if another run holds it."""
    host.make_private_folder(FOLDER)
    descriptor = os.open(host.real(f"{FOLDER}/lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(_holder(os.pread(descriptor, 4096, 0))) from None
        holder = json.dumps({"by": by, "pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        with _undisturbed():
            yield
    finally:
        os.close(descriptor)


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
