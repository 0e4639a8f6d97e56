"""Programs on this machine: whether they are installed, and the gist of their error output."""

from __future__ import annotations

import shutil

from gpuctl.core.errors import InvalidInput


def need(program: str) -> str:
    """The path of a program; `InvalidInput` if it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise InvalidInput(f"use {program}", "it is not installed", "`gpuctl bootstrap laptop` installs it")
    return path


def installed(program: str) -> bool:
    return shutil.which(program) is not None


def gist(err: str) -> str:
    """The last line of a program's standard error."""
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it failed without a message"
