"""One run at a time on a host: a lock that the kernel gives back when its holder dies, however it dies."""

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
    """Another run is at work on this host; the text says whose and since when."""


@contextlib.contextmanager
def lock(host: Host, by: str) -> Iterator[None]:
    """Hold the host's lock; `Locked` at once where another run holds it."""
    host.make_private_folder(FOLDER)
    descriptor = os.open(host.real(f"{FOLDER}/lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(_holder(os.pread(descriptor, 4096, 0))) from None
        told = json.dumps({"by": by, "pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, told.encode(), 0)
        with _undisturbed():
            yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let nobody but `kill -9` end us between two changes: what was begun is finished, and its record closed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    # A handler that does nothing: to ignore them would be passed on to every program we start.
    before = [(number, signal.signal(number, lambda *_: None)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _holder(text: bytes) -> str:
    try:
        told = json.loads(text)
        return f"{told['by']} has been at work on this host since {told['since']} (process {told['pid']})"
    except (ValueError, KeyError):
        return "another run has just started on this host"
