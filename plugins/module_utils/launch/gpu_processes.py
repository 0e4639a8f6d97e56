"""Runs in a container: lists processes that hold a GPU, or are ranks of a job.

It is sent there as text (gpuctl/remote/payload.py), so it imports nothing of this package.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

GPU = re.compile(r"/dev/nvidia\d+$")
# Set for each rank by torchrun and similar launchers, Open MPI 4, and Open MPI 5.
RANK = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK")
MONITORS = ("nvidia-smi", "nvtop", "dcgmi", "nvitop")  # they hold GPUs open, but are no jobs
OURS = ("sshd", "sshd-session", "sshd-auth")  # unreadable for everybody, and in every pod
PROC = Path("/proc")


def is_readable(folder: Path) -> bool:
    """True if we may read its environment, or it has ended."""
    try:
        with (folder / "environ").open("rb") as text:
            text.read(1)
    except PermissionError:
        return False
    except OSError:  # it has ended
        pass
    return True


def main(request: dict[str, Any]) -> None:
    """Print the marked line: {processes: [{pid, name, rank or None}], hidden: [{pid, name}]}."""
    sys.stdout.write(
        "\n" + request["mark"] + json.dumps({"processes": gpu_processes(), "hidden": unreadable_processes()}) + "\n"
    )


def gpu_processes(proc: Path = PROC) -> list[dict[str, object]]:
    """Processes, except ourselves, that hold a GPU or have a rank."""
    result: list[dict[str, object]] = []
    for folder in processes(proc):
        name, rank = name_of(folder), rank_of(folder)
        if rank is not None or (holds_a_gpu(folder) and name not in MONITORS):
            result.append({"pid": int(folder.name), "name": name, "rank": rank})
    return result


def unreadable_processes(
    proc: Path = PROC, is_readable: Callable[[Path], bool] = is_readable
) -> list[dict[str, object]]:
    """Processes whose environment we may not read, except sshd's."""
    unreadable = [(folder, name_of(folder)) for folder in processes(proc) if not is_readable(folder)]
    return [{"pid": int(folder.name), "name": name} for folder, name in unreadable if name not in OURS]


def processes(proc: Path) -> list[Path]:
    """Folders of all processes except ourselves, by number."""
    folders = [folder for folder in proc.iterdir() if folder.name.isdigit() and int(folder.name) != os.getpid()]
    return sorted(folders, key=lambda folder: int(folder.name))


def rank_of(folder: Path) -> int | None:
    """Rank of a process, if a launcher set one; RANK counts only together with WORLD_SIZE."""
    pairs = (pair.split(b"=", 1) for pair in read(folder / "environ").split(b"\0") if b"=" in pair)
    variables = {pair[0]: pair[1] for pair in pairs}
    if b"WORLD_SIZE" not in variables:
        variables.pop(b"RANK", None)
    return next((int(variables[name]) for name in RANK if variables.get(name, b"").isdigit()), None)


def holds_a_gpu(folder: Path) -> bool:
    """True if it has a GPU's device file open."""
    try:
        return any(GPU.match(os.readlink(descriptor)) for descriptor in (folder / "fd").iterdir())
    except OSError:  # it has ended, or belongs to another user
        return False


def name_of(folder: Path) -> str:
    """Name of the program; empty if it has ended."""
    return read(folder / "comm").decode(errors="replace").strip()


def read(path: Path) -> bytes:
    """The content of a file; empty if its process has ended, or belongs to another user."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
