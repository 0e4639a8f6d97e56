"""Read kernel logs from files: plain or gzipped text, and standard input."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import cast

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.xid_lines import KernelLog, parse_lines

GZIP = b"\x1f\x8b"  # magic number of gzip files
LOOK = 1 << 16  # bytes that are inspected to recognise text
HINT = "name a text file, such as the output of `journalctl -k` or `dmesg`, or - for standard input"


def read(path: Path) -> KernelLog:
    """Events of a file, or of standard input for "-"; raises InvalidInput if it cannot be read or is no text."""
    try:
        if str(path) == "-":
            return _parsed(path, io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer)))
        with path.open("rb") as file:
            return _parsed(path, file)
    except (OSError, EOFError, zlib.error) as error:
        wrong = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"read {path}", wrong, HINT) from error


def _parsed(path: Path, file: io.BufferedReader) -> KernelLog:
    compressed = file.peek(2)[:2] == GZIP
    stream = io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=file))) if compressed else file
    if b"\0" in stream.peek(LOOK)[:LOOK]:
        raise InvalidInput(f"read {path}", "it is binary, not text", HINT)
    return parse_lines(io.TextIOWrapper(stream, encoding="utf-8", errors="replace"))
