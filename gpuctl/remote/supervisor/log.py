"""A program's output in files of a pod: offsets count from its first byte, and only the newest files are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

FILE_BYTES = 64 << 20  # of one file; there are at most two
NAME = "log-"


def files(folder: Path) -> dict[int, Path]:
    """Return the files of a log by the offset of their first byte."""
    by_offset = {int(path.name[len(NAME) :]): path for path in folder.glob(f"{NAME}*")}
    return dict(sorted(by_offset.items()))


class Writer:
    """Append to a log. Output that does not fit on a full disk is dropped and counted; the program is not disturbed."""

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        self.folder, self.file_bytes = folder, file_bytes
        self.size = self.start = self.lost = 0
        self.file: IO[bytes] | None = None

    def add(self, data: bytes) -> None:
        """Append data, starting a new file when the current one is full."""
        try:
            file = self._open()
            while data:
                sent = os.write(file.fileno(), data)
                self.size += sent
                data = data[sent:]
        except OSError:
            self.lost += len(data)

    def _open(self) -> IO[bytes]:
        """Return the file to write to."""
        if self.file and self.size - self.start < self.file_bytes:
            return self.file
        file = (self.folder / f"{NAME}{self.size}").open("ab", buffering=0)
        if self.file:
            self.file.close()
        self.file, self.start = file, self.size
        for path in list(files(self.folder).values())[:-2]:
            path.unlink()
        return file


def read(folder: Path, offset: int, most: int) -> tuple[int, bytes]:
    """Return output from an offset on: the actual start (the oldest output is deleted) and the bytes."""
    log_files = list(files(folder).items())
    if not log_files:
        return offset, b""
    start, path = next((entry for entry in reversed(log_files) if entry[0] <= offset), log_files[0])
    offset = max(offset, start)
    with path.open("rb") as file:
        file.seek(offset - start)
        return offset, file.read(most)
