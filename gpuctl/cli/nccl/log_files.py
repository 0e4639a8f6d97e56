"""Log files given by the user; all are checked before any is read."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

import click

from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.nccl.model import Run

LOOK = 1 << 16  # bytes that are inspected to recognise text
GZIP = b"\x1f\x8b"  # magic number of gzip files
HINT = "name a file with the output of nccl-tests, or - for standard input"

argument = click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, allow_dash=True)
)


def by_file(files: Sequence[Path]) -> Iterator[tuple[str, list[Run]]]:
    """Return each file with its runs; every file is checked before any is read."""
    for path in files:
        _usable(path)
    return ((str(path), list(_read(path))) for path in files)


def runs(files: Sequence[Path]) -> Iterator[tuple[str, Run]]:
    """Return every run with its file name, numbered if the file has several."""
    for name, file_runs in by_file(files):
        for number, run in enumerate(file_runs, 1):
            yield (f"{name} run {number}" if len(file_runs) > 1 else name), run


def _usable(path: Path) -> None:
    if str(path) == "-" or path.is_fifo():  # a pipe can be read only once
        return
    with _read_of(path) as file:
        begin = file.read(LOOK)
    if b"\0" in begin:
        raise InvalidInput(f"read {path}", "it is binary, not text", HINT)


def _read(path: Path) -> Iterator[Run]:
    from gpuctl.nccl.parsing import parse as parser

    if str(path) == "-":
        yield from parser.runs(_text(sys.stdin))
        return
    with _read_of(path) as file:
        yield from parser.runs(io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="\n"))


@contextmanager
def _read_of(path: Path) -> Iterator[BinaryIO]:
    """Open a file, decompressing gzip whatever its name; raises `InvalidInput` if it cannot be read."""
    import gzip
    import zlib

    try:
        with path.open("rb") as file:
            if file.peek(len(GZIP))[: len(GZIP)] != GZIP:
                yield file
                return
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast("BinaryIO", unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        wrong = "its gzip data is cut off or damaged"
        raise InvalidInput(f"read {path}", wrong, "copy it again; `gzip -t` checks the file") from error
    except OSError as error:
        raise InvalidInput(f"read {path}", error.strerror or str(error), HINT) from error


def _text(stream: TextIO) -> Iterable[str]:
    """Standard input as lines, tolerating any bytes."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    return stream
