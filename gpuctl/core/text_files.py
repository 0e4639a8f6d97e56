"""Text files that users name: plain or compressed by gzip, whatever their names, and - for standard input."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from gpuctl.core.errors import InvalidInput

LOOK = 1 << 16  # bytes that are inspected to recognise text
GZIP = b"\x1f\x8b"  # magic number of gzip files
MOST_OF_A_LINE = 1 << 20  # characters; a progress bar without line ends may be long


def check(path: Path, hint: str) -> None:
    """Raise `InvalidInput` if a file cannot be read or is no text; what can be read only once is left alone."""
    if str(path) != "-" and not path.is_fifo():
        with open_text(path, hint):
            pass


@contextmanager
def open_text(path: Path, hint: str, newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file, tolerating any bytes that are no UTF-8; `newline` as in `open`.

    Raises `InvalidInput` with the hint, also while it is read, if it cannot be read, is binary, or its gzip data is
    damaged.
    """
    import gzip
    import zlib

    try:
        with _bytes(path) as file:
            stream = _buffered(file)
            if stream.peek(len(GZIP))[: len(GZIP)] == GZIP:
                stream = _buffered(gzip.GzipFile(fileobj=stream))
            if b"\0" in stream.peek(LOOK)[:LOOK]:
                raise InvalidInput(f"read {path}", "it is binary, not text", hint)
            yield io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=newline)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        wrong = "its gzip data is cut off or damaged"
        raise InvalidInput(f"read {path}", wrong, "copy it again; `gzip -t` checks the file") from error
    except OSError as error:
        raise InvalidInput(f"read {path}", error.strerror or str(error), hint) from error


def bounded_lines(stream: TextIO) -> Iterator[str]:
    """Lines of a stream; one without an end comes in parts, so that it does not fill the memory."""
    while line := stream.readline(MOST_OF_A_LINE):
        yield line


@contextmanager
def _bytes(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


def _buffered(file: object) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", file), LOOK)
