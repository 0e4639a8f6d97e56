"""History of the runs from this machine: who changed what on which host, and when."""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuctl.core import json_file
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically

KEPT = 500  # newest records that are kept
KEPT_BYTES = 2**30  # and at most so much of them: a run on 1,000 hosts has 30 MB


@dataclass(frozen=True)
class RunRecord:
    """One run. `at`: UTC, ISO 8601. `command`: the arguments of gpuctl. `hosts`: host -> its result.

    `exit_code`: None until the run has ended; it stays so if the run is killed.
    """

    name: str
    at: str
    actor: str
    command: Sequence[str]
    exit_code: int | None
    hosts: Mapping[str, Any]


def current_user() -> str:
    """USER@MACHINE of this process, for records and locks."""
    return f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{os.uname().nodename}"


def new(command: Sequence[str]) -> RunRecord:
    """The record of a run that begins now; `save` writes it."""
    now = time.time()
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{os.getpid()}"
    return RunRecord(
        name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), current_user(), list(command), None, {}
    )


def save(run: RunRecord) -> None:
    """Write a record as a whole or not at all, over an earlier one of the same run; remove the oldest records."""
    write_atomically(folder() / f"{run.name}.json", json.dumps(asdict(run), indent=1) + "\n")
    left = KEPT_BYTES
    for number, name in enumerate(reversed(names())):
        path = state_dir() / "runs" / f"{name}.json"
        with contextlib.suppress(FileNotFoundError):  # another run has removed it
            left -= path.stat().st_size
            if number and (number >= KEPT or left < 0):
                path.unlink()


def folder() -> Path:
    """The folder of the records, created if missing; OSError if it cannot be written."""
    path = private(state_dir() / "runs")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "not writable", str(path))
    return path


def names() -> list[str]:
    """All recorded runs, oldest first."""
    return sorted(path.stem for path in (state_dir() / "runs").glob("*.json"))


def load(name: str) -> RunRecord:
    """A recorded run; `InvalidInput` if none has this name, or if its record is damaged."""
    path = state_dir() / "runs" / f"{name}.json"
    if "/" in name or not path.is_file():
        raise InvalidInput(f"show the run {name!r}", "no run has this name", "`gpuctl runs` lists them")
    doing, hint = f"read the record {path}", "it is damaged, or of another version of gpuctl: move it away"
    return json_file.fitting(json_file.load(path, doing, hint), RunRecord, doing, hint)
