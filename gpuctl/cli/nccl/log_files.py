"""Log files given by the user; all are checked before any is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.core import text_files

if TYPE_CHECKING:
    from gpuctl.nccl.model import Run

HINT = "pass a file with the output of nccl-tests, or - for standard input"

argument = click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, allow_dash=True)
)


def by_file(files: Sequence[Path]) -> Iterator[tuple[str, list[Run]]]:
    """Return each file with its runs; every file is checked before any is read."""
    for path in files:
        text_files.check(path, HINT)
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


def _read(path: Path) -> Iterator[Run]:
    from gpuctl.nccl.parsing import parse as parser

    with text_files.open_text(path, HINT, newline="\n") as lines:
        yield from parser.runs(lines)
