"""Runs in a container: which processes hold a GPU, or are ranks of a job that does.

It is carried there as a text (gpuctl/remote/payload.py), so it imports nothing of ours.
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
# What launchers tell each rank: torchrun and its kin, Open MPI 4, and 5.
RANK = (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK")
LOOKERS = ("nvidia-smi", "nvtop", "dcgmi", "nvitop")  # who only looks at GPUs has them open, too
OURS = ("sshd", "sshd-session", "sshd-auth")  # lets nobody look into it, and is in every pod
PROC = Path("/proc")


def may_look(folder: Path) -> bool:
    """Whether we may see what it was started with."""
    try:
        with (folder / "environ").open("rb") as text:
            text.read(1)
    except PermissionError:
        return False
    except OSError:  # it has ended
        pass
    return True


def main(request: dict[str, Any]) -> None:
    """The line with the mark tells {found}: pid, name, and rank or None of each; {hidden}: those we may not look at."""
    sys.stdout.write("\n" + request["mark"] + json.dumps({"found": at_work(), "hidden": hidden()}) + "\n")


def at_work(proc: Path = PROC) -> list[dict[str, object]]:
    """All of them but ourselves."""
    at_work_ = []
    for folder in processes(proc):
        name, rank = name_of(folder), rank_of(folder)
        if rank is not None or (holds_a_gpu(folder) and name not in LOOKERS):
            at_work_.append({"pid": int(folder.name), "name": name, "rank": rank})
    return at_work_


def hidden(proc: Path = PROC, may_look: Callable[[Path], bool] = may_look) -> list[dict[str, object]]:
    """Those of other users, where we have not the right to look at them, and whoever forbids that."""
    unreadable = [(folder, name_of(folder)) for folder in processes(proc) if not may_look(folder)]
    return [{"pid": int(folder.name), "name": name} for folder, name in unreadable if name not in OURS]


def processes(proc: Path) -> list[Path]:
    """The folders of all but ourselves, by number."""
    folders = [folder for folder in proc.iterdir() if folder.name.isdigit() and int(folder.name) != os.getpid()]
    return sorted(folders, key=lambda folder: int(folder.name))


def rank_of(folder: Path) -> int | None:
    """The rank a launcher gave it; RANK alone may mean anything."""
    pairs = (pair.split(b"=", 1) for pair in read(folder / "environ").split(b"\0") if b"=" in pair)
    variables = {pair[0]: pair[1] for pair in pairs}
    if b"WORLD_SIZE" not in variables:
        variables.pop(b"RANK", None)
    return next((int(variables[name]) for name in RANK if variables.get(name, b"").isdigit()), None)


def holds_a_gpu(folder: Path) -> bool:
    """Whether it has one open."""
    try:
        return any(GPU.match(os.readlink(descriptor)) for descriptor in (folder / "fd").iterdir())
    except OSError:  # it has ended, or is somebody else's
        return False


def name_of(folder: Path) -> str:
    """Its program."""
    return read(folder / "comm").decode(errors="replace").strip()


def read(path: Path) -> bytes:
    """Nothing where its process has ended, or is somebody else's."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
