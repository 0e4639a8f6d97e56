"""Output of a launch as it is read: sizes are reported, some lines kept, the whole text saved."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO

from gpuctl.core.errors import GpuctlError
from gpuctl.nccl.launch import outcome
from gpuctl.nccl.model import Launch

KEPT_LINES = 400


def file_name(launch: Launch, name: str) -> str:
    """File name for the output of a launch: time, nodes, and `name`, which keeps names unique."""
    return f"{time.strftime('%H%M%S')}-{'-'.join(launch.nodes)[:80]}-{name}.log"


def create_folder(folder: Path | None) -> Path | None:
    """Create the folder for run output; `GpuctlError` if it is not writable. None if no output is to be saved."""
    if folder is None:
        return None
    doing = f"save the output of runs in {folder}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuctlError(doing, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise GpuctlError(doing, "the folder is not writable", "choose another folder")
    return folder


class LaunchOutput:
    """Collects lines inside a `with` block, which keeps the file open. `done_size` is the newest row's, as "64M".

    `name` makes the file name unique in the folder; without a folder nothing is saved.
    """

    def __init__(self, launch: Launch, name: str, folder: Path | None, on_size: Callable[[str], None]) -> None:
        self.done_size = ""
        self._on_size, self._folder = on_size, folder
        self._file = file_name(launch, name)
        self._text: IO[str] | None = None
        # Lines other than rows: the first ones, which contain the first error, and the last ones.
        self._first, self._last = list[str](), deque[str](maxlen=KEPT_LINES)

    def __enter__(self) -> LaunchOutput:
        self._text = (self._folder / self._file).open("w") if self._folder else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._text:
            self._text.close()

    @property
    def last(self) -> tuple[str, ...]:
        """Kept lines, in order."""
        return (*self._first, *self._last)

    def write(self, line: str) -> None:
        """Write to the file only."""
        if self._text:
            self._text.write(line + "\n")

    def add(self, lines: Iterable[str]) -> None:
        """Add errors from outside the output."""
        self._last.extend(lines)

    def take(self, line: str) -> None:
        """Take the next line of the test."""
        self.write(line)
        self.note(line)

    def note(self, line: str) -> None:
        """Like `take`, for a line already written."""
        size = outcome.size_of_row(line)
        if size is None:
            (self._first if len(self._first) < KEPT_LINES else self._last).append(line)
        elif self.done_size != size:
            self.done_size = size
            self._on_size(f"{size} done")
