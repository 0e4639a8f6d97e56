"""Find old Pythons on this machine, as pods and hosts have them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
PROBE = "import sys; print(*sys.version_info[:2])"


def old_python(minor: int) -> str:
    """Path of the oldest Python from 3.`minor` on that is older than ours; skips the test if there is none."""
    path = _oldest(minor)
    if path is None:
        pytest.skip(f"no Python from 3.{minor} to 3.{sys.version_info.minor - 1} is installed")
    return path


@cache
def _oldest(minor: int) -> str | None:
    versions = {path: version for path in _candidates() if (version := _version(path)) is not None}
    fit = {path: version for path, version in versions.items() if (3, minor) <= version < sys.version_info[:2]}
    return min(fit, key=lambda path: fit[path], default=None)


def _candidates() -> Iterator[str]:
    yield from map(str, sorted(PYENV.glob("versions/3.*/bin/python3")))
    names = ["python3", *(f"python3.{minor}" for minor in range(8, sys.version_info.minor))]
    yield from (path for name in names if (path := shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")))


def _version(path: str) -> tuple[int, int] | None:
    try:
        done = subprocess.run([path, "-ISc", PROBE], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"(\d+) (\d+)\n", done.stdout)
    return (int(match[1]), int(match[2])) if match else None
