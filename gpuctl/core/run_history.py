"""A record of every run, on the machine gpuctl runs on: who, when, what changed on which host."""

from __future__ import annotations

import errno
import getpass
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically


@dataclass(frozen=True)
class RunRecord:
    """One run; `hosts` holds what each host came to, `command` the words that were typed."""

    name: str
    at: str
    by: str
    command: Sequence[str]
    exit_code: int
    hosts: Mapping[str, Any]


def current_user() -> str:
    """The user and machine that ask, for records and locks."""
    return f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{os.uname().nodename}"


def save(command: Sequence[str], exit_code: int, hosts: Mapping[str, Any]) -> RunRecord:
    """Write a run down, whole or not at all."""
    now = time.time()
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{os.getpid()}"
    run = RunRecord(
        name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), current_user(), list(command), exit_code, hosts
    )
    write_atomically(folder() / f"{name}.json", json.dumps(asdict(run), indent=1) + "\n")
    return run


def folder() -> Path:
    """The folder of the records, created if missing; OSError if it cannot be written."""
    path = private(state_dir() / "runs")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it cannot be written", str(path))
    return path


def names() -> list[str]:
    """All runs on record, oldest first."""
    return sorted(path.stem for path in (state_dir() / "runs").glob("*.json"))


def load(name: str) -> RunRecord:
    """One run by its name."""
    path = state_dir() / "runs" / f"{name}.json"
    if "/" in name or not path.is_file():
        raise InvalidInput(f"show the run {name!r}", "there is none of that name", "`gpuctl runs` lists them")
    return RunRecord(**json.loads(path.read_text()))
