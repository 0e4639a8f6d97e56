"""After Ctrl-C: end the installers that run, and remove what is only half installed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from ..gpuhost.host import Host
from ..progress import report_progress
from .record import remove_tree

# Stopping one would leave packages half configured.
_PACKAGE_MANAGERS = ("sudo", "apt-get", "dnf", "brew")
_unfinished: dict[str, tuple[str, ...]] = {}


@contextlib.contextmanager
def unfinished(folder: str, *around: str) -> Iterator[None]:
    """Have the folder removed if the run is interrupted inside the block, then the ones around it if they are empty."""
    _unfinished[folder] = around
    try:
        yield
    finally:
        _unfinished.pop(folder, None)


def clean_up_on_signals() -> None:
    """Clean up and exit on the signals that Ansible sends to its modules when it ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    # Ansible may send both signals, each to the whole process group.
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    for pid, name in _children():
        if name in _PACKAGE_MANAGERS:
            report_progress(f"{name} finishes the packages that it is installing")
        else:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)  # it leads a process group of its own: see Host.run
    for folder, around in list(_unfinished.items()):
        remove_tree(folder)
        for outer in around:
            with contextlib.suppress(OSError):  # it contains other versions or tools, or its thread has removed it
                os.rmdir(outer)
    os._exit(128 + number)  # threads that wait for a download would delay a usual exit


def _children() -> list[tuple[int, str]]:
    """Return process id and program name of the programs that this process has started."""
    rows = (line.split(None, 2) for line in Host().run("ps", "-A", "-o", "pid=,ppid=,comm=", limit=5).out.splitlines())
    ours = [row for row in rows if len(row) == 3 and row[1] == str(os.getpid())]
    return [(int(pid), os.path.basename(name)) for pid, _, name in ours]
