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
    """Return every run with its file name, and its number and origin if the file has several."""
    for name, file_runs in by_file(files):
        for run, run_name in zip(file_runs, names(name, file_runs), strict=True):
            yield run_name, run


def names(file: str, file_runs: Sequence[Run]) -> list[str]:
    """Names of the runs of a file: "nccl.log run 2 (pod-b worker)"; that of the file if there is only one."""
    if len(file_runs) == 1:
        return [file]
    several = len({run.origin for run in file_runs}) > 1
    origins = [f" ({run.origin})" if several and run.origin else "" for run in file_runs]
    return [f"{file} run {number}{origin}" for number, origin in enumerate(origins, 1)]


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
