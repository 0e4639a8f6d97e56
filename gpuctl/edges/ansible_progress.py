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
def progress_listener(say: Callable[[str], None]) -> Iterator[None]:
    """Within it, each line that the module tells is handed to `say`, from another thread."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        pipe = Path(folder, "progress")
        os.mkfifo(pipe, mode=0o600)
        both = os.open(pipe, os.O_RDWR)  # open for writing, too: it does not end between two lines
        thread = threading.Thread(target=_read, args=[both, say], daemon=True)
        thread.start()
        os.environ[PIPE] = str(pipe)  # which Ansible and the module inherit
        try:
            yield
        finally:
            del os.environ[PIPE]
            os.write(both, _END)
            thread.join()
            os.close(both)


def _read(pipe: int, say: Callable[[str], None]) -> None:
    with os.fdopen(pipe, "rb", closefd=False) as stream:
        for line in iter(stream.readline, _END):
            say(line.decode("utf-8", "replace").rstrip("\n"))
