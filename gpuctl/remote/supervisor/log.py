"""What a program printed, in files of a pod: counted from its first byte, and only the newest of it kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

FILE_BYTES = 64 << 20  # of one file; there are at most two
NAME = "log-"


def files(folder: Path) -> dict[int, Path]:
    """The files of a log by the count of bytes before each."""
    found = {int(path.name[len(NAME) :]): path for path in folder.glob(f"{NAME}*")}
    return dict(sorted(found.items()))


class Writer:
    """Writes a log. What a full disk does not take is lost, counted, and nothing else is kept from its work."""

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        self.folder, self.file_bytes = folder, file_bytes
        self.size = self.start = self.lost = 0
        self.file: IO[bytes] | None = None

    def add(self, data: bytes) -> None:
        """Write it, in a new file where the last is full."""
        try:
            file = self._open()
            while data:
                sent = os.write(file.fileno(), data)
                self.size += sent
                data = data[sent:]
        except OSError:
            self.lost += len(data)

    def _open(self) -> IO[bytes]:
        """The file to write to now."""
        if self.file and self.size - self.start < self.file_bytes:
            return self.file
        found = (self.folder / f"{NAME}{self.size}").open("ab", buffering=0)
        if self.file:
            self.file.close()
        self.file, self.start = found, self.size
        for path in list(files(self.folder).values())[:-2]:
            path.unlink()
        return found


def read(folder: Path, offset: int, most: int) -> tuple[int, bytes]:
    """What was printed from so many bytes on: where it truly begins, as the oldest is not kept, and the bytes."""
    found = list(files(folder).items())
    if not found:
        return offset, b""
    start, path = next((each for each in reversed(found) if each[0] <= offset), found[0])
    offset = max(offset, start)
    with path.open("rb") as file:
        file.seek(offset - start)
        return offset, file.read(most)
