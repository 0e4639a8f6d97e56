"""Send progress lines to the gpuctl process that started Ansible, as Ansible prints nothing until a task ends."""

from __future__ import annotations

import contextlib
import os

PIPE = "GPUCTL_PROGRESS"  # path of the pipe that gpuctl reads; set only by gpuctl


def report_progress(line: str) -> None:
    """Send one line; does nothing if no process listens."""
    path = os.environ.get(PIPE)
    if not path:
        return
    with contextlib.suppress(OSError):  # the reader is gone, or has not read the last 64 KiB
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, f"{line}\n".encode("utf-8", "replace"))
        finally:
            os.close(pipe)
