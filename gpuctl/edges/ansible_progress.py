"""Progress messages of a running module; Ansible itself forwards nothing before a task ends."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuctl.engine import PIPE

_END = b"\0\n"


@contextmanager
def progress_listener(on_line: Callable[[str], None]) -> Iterator[None]:
    """Pass each progress line of the module to `on_line`, from another thread, within the block."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        pipe = Path(folder, "progress")
        os.mkfifo(pipe, mode=0o600)
        both = os.open(pipe, os.O_RDWR)  # open for writing, too, so that it does not end between two lines
        thread = threading.Thread(target=_read, args=[both, on_line], daemon=True)
        thread.start()
        os.environ[PIPE] = str(pipe)  # inherited by Ansible and the module
        try:
            yield
        finally:
            del os.environ[PIPE]
            os.write(both, _END)
            thread.join()
            os.close(both)


def _read(pipe: int, on_line: Callable[[str], None]) -> None:
    with os.fdopen(pipe, "rb", closefd=False) as stream:
        for line in iter(stream.readline, _END):
            on_line(line.decode("utf-8", "replace").rstrip("\n"))
