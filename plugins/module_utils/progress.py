"""Send progress lines to the gpuctl process that started Ansible, which itself prints nothing until a task ends."""

from __future__ import annotations

import contextlib
import os

PIPE = "GPUCTL_PROGRESS"  # where gpuctl reads; set only by it


def report_progress(line: str) -> None:
    """Send one line; does nothing if no process listens."""
    path = os.environ.get(PIPE)
    if not path:
        return
    with contextlib.suppress(OSError):  # who listened is gone, or has not read the last 64 KiB
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, f"{line}\n".encode("utf-8", "replace"))
        finally:
            os.close(pipe)
