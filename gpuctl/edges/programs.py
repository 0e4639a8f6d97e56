"""Programs on this machine: whether they are installed, and the gist of their error output."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import IO

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.kube_errors import page_line

PAGE = re.compile(r"<(?:!doctype html|html|head|body)\b.*", re.IGNORECASE | re.DOTALL)


def need(program: str) -> str:
    """The path of a program; `InvalidInput` if it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise InvalidInput(f"use {program}", "it is not installed", "`gpuctl bootstrap laptop` installs it")
    return path


def gpuctl_program() -> str:
    """Path of gpuctl, for programs that start it and whose PATH may lack it."""
    beside = Path(sys.argv[0] if Path(sys.argv[0]).name == "gpuctl" else sys.executable).with_name("gpuctl")
    return str(beside.absolute()) if beside.exists() else shutil.which("gpuctl") or "gpuctl"


def installed(program: str) -> bool:
    return shutil.which(program) is not None


def find(program: str, path: str) -> Path | None:
    """Return a program's file from a PATH; None if it is not there."""
    file = shutil.which(program, path=path)
    return Path(file) if file else None


def last_part(file: IO[bytes], most_bytes: int = 2**16) -> str:
    """Return the end of a program's output in a file, which may have any size."""
    size = os.fstat(file.fileno()).st_size
    omitted = f"[{size - most_bytes} bytes omitted]\n" if size > most_bytes else ""
    # Without moving the position, which the program shares and writes at.
    return omitted + os.pread(file.fileno(), most_bytes, max(0, size - most_bytes)).decode(errors="replace")


def is_cut_page(text: str) -> bool:
    """Return True if the text has the beginning of a server's error page and not its end."""
    page = PAGE.search(text)
    return page is not None and "</html" not in page[0].lower()


def gist(err: str) -> str:
    """The last line of a program's standard error, or the title of a server's error page in it."""
    if page := PAGE.search(err):
        return page_line(page[0]) or "the server answered with an empty page"
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it failed without a message"
