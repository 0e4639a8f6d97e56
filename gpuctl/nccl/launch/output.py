"""What a launch prints while it is read: its sizes told, some of its words kept, the whole text written down."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO

from gpuctl.nccl.launch import outcome
from gpuctl.nccl.model import Launch

KEPT_LINES = 400


def file_name(launch: Launch, name: str) -> str:
    """That of the text of a launch: when, where, and `name`, which tells it from those of other launches."""
    return f"{time.strftime('%H%M%S')}-{'-'.join(launch.nodes)[:80]}-{name}.log"


class LaunchOutput:
    """`take` gets every line, within `with`, which keeps the text open. `done_size` is the newest row's, as "64M".

    `name` tells the text from those of other launches in the folder; without a folder nothing is written.
    """

    def __init__(self, launch: Launch, name: str, folder: Path | None, on_size: Callable[[str], None]) -> None:
        self.done_size = ""
        self._told, self._folder = on_size, folder
        self._file = file_name(launch, name)
        self._text: IO[str] | None = None
        # Of the lines that are no rows the first, where the first error stands, and the last.
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
        """The lines kept, in their order."""
        return (*self._first, *self._last)

    def write(self, line: str) -> None:
        """Only into the text."""
        if self._text:
            self._text.write(line + "\n")

    def add(self, lines: Iterable[str]) -> None:
        """Errors that came beside it."""
        self._last.extend(lines)

    def take(self, line: str) -> None:
        """The next line of the test."""
        self.write(line)
        self.note(line)

    def note(self, line: str) -> None:
        """As `take`, of a line that was written already."""
        size = outcome.size_of_row(line)
        if size is None:
            (self._first if len(self._first) < KEPT_LINES else self._last).append(line)
        elif self.done_size != size:
            self.done_size = size
            self._told(f"{size} done")
