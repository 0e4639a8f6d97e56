"""Runs on a node: finds what a launch has there, by a mark in the environment of its processes, and ends it if asked.

It is also carried there as a text (gpuctl/remote/payload.py), so it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

LOOK_S = 0.4
PATIENCE_S = 10.0
GENTLE_S = 1.5  # for ranks: then they are killed
# What starts ranks ends by itself once they are gone, and then removes its files. Told to end twice, it would not.
LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "prte", "orted", "prted", "ssh")
ALONE_S, LAUNCHER_S = 3.0, 6.0  # when they are told to end, and when they are killed
PROC = Path("/proc")
ENDING = 0x4  # PF_EXITING of the kernel, among a process's flags
ENDED = ("Z", "X")


def main(request: dict[str, Any]) -> None:
    """Tell of every process with the mark in its environment; with `end`, end them and tell which are left.

    asked: mark (of the answer's line), variable ("NAME=VALUE"), end.
    """
    variable = request["variable"].encode()
    answer = {"left": end(variable)} if request["end"] else {"found": look(variable)}
    sys.stdout.write("\n" + request["mark"] + json.dumps(answer) + "\n")


def look(variable: bytes) -> list[dict[str, object]]:
    """Every process that has it in its environment; `still`: its first thread did nothing while we looked."""
    before = {pid: moved(pid) for pid in marked(variable)}
    time.sleep(LOOK_S)
    return [dict(about(pid), still=then == moved(pid)) for pid, then in before.items()]


def end(variable: bytes, patience_s: float = PATIENCE_S, proc: Path = PROC) -> list[dict[str, object]]:
    """End them, gently first; those that are still there after all patience.

    A process that is ending gives its environment back long before it is gone, and one that waits for a driver
    meanwhile is never gone: those of our user that were already ending are waited for, too, as they may be ours.
    """
    begun, ours, foreign = time.monotonic(), marked(variable, proc), leaving(proc)
    signalled: set[int] = set()
    while (ours or foreign) and time.monotonic() - begun < patience_s:
        for pid in ours:
            for number in signals(about(pid, proc)["name"] in LAUNCHERS, pid in signalled, time.monotonic() - begun):
                signalled.add(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        time.sleep(0.1)
        ours = {**remaining(ours, proc), **marked(variable, proc)}
        foreign = remaining(foreign, proc)
    return [about(pid, proc) for pid in {**foreign, **ours}]


def signals(launcher: bool, signalled: bool, since_s: float) -> tuple[signal.Signals, ...]:
    """What a process is sent so long after we began; `told`: it was sent something already."""
    if since_s >= (LAUNCHER_S if launcher else GENTLE_S):
        return (signal.SIGKILL,)
    if signalled or (launcher and since_s < ALONE_S):
        return ()
    return (signal.SIGTERM, signal.SIGCONT)


def marked(variable: bytes, proc: Path = PROC) -> dict[int, str]:
    """Every process that has it in its environment, with when it began: its number may soon be another's."""
    # When it began is asked first: where the number changes hands in between, what we know is of one that is gone.
    started = {pid: began(pid, proc) for pid in numbers(proc)}
    return {pid: when for pid, when in started.items() if variable in environment(pid, proc).split(b"\0")}


def leaving(proc: Path = PROC) -> dict[int, str]:
    """The processes of our user that are ending, and so have no environment any more, with when they began."""
    started = {pid: began(pid, proc) for pid in numbers(proc) if ending(pid, proc) and owner(pid, proc) == os.geteuid()}
    return {pid: when for pid, when in remaining(started, proc).items() if not environment(pid, proc)}


def ending(pid: int, proc: Path = PROC) -> bool:
    """Whether its first thread is."""
    flags = fields(pid, proc)[6:7]
    return bool(flags) and bool(int(flags[0]) & ENDING)


def remaining(started: dict[int, str], proc: Path = PROC) -> dict[int, str]:
    """Those that have not ended. One that waits to be collected by its parent has, unless it has threads that live."""
    return {pid: when for pid, when in started.items() if began(pid, proc) == when and lives(pid, proc)}


def lives(pid: int, proc: Path = PROC) -> bool:
    """Whether any of its threads does."""
    states = [fields(int(thread), proc, f"{pid}/task")[:1] for thread in threads(pid, proc)]
    return any(state and state[0] not in ENDED for state in states)


def began(pid: int, proc: Path = PROC) -> str:
    """When it began, in ticks since the machine did; "" where there is no such process."""
    return "".join(fields(pid, proc)[19:20])


def numbers(proc: Path = PROC) -> list[int]:
    """Of all processes."""
    return [int(folder.name) for folder in proc.iterdir() if folder.name.isdigit()]


def threads(pid: int, proc: Path = PROC) -> list[str]:
    """The numbers of its threads."""
    try:
        return os.listdir(proc / str(pid) / "task")
    except OSError:
        return []


def owner(pid: int, proc: Path = PROC) -> int | None:
    """Whose it is; None where it has ended."""
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


def environment(pid: int, proc: Path = PROC) -> bytes:
    """What it was started with; where its first thread has ended, another one still has it."""
    first = read(f"{pid}/environ", proc)
    return first or next(filter(None, (read(f"{pid}/task/{one}/environ", proc) for one in threads(pid, proc))), b"")


def fields(pid: int, proc: Path = PROC, folder: str = "") -> list[str]:
    """What the kernel's `stat` says after the name, from the letter of the state on."""
    return read(f"{folder}/{pid}/stat".lstrip("/"), proc).rpartition(b")")[2].decode().split()


def read(name: str, proc: Path = PROC) -> bytes:
    """A file below /proc; nothing where its process has ended, or is somebody else's."""
    try:
        return (proc / name).read_bytes()
    except OSError:
        return b""


def moved(pid: int) -> list[str]:
    """What changes as soon as its first thread does anything: its processor time and how often it was switched."""
    status = read(f"{pid}/task/{pid}/status").decode(errors="replace").splitlines()
    return fields(pid, folder=f"{pid}/task")[11:13] + [line for line in status if "ctxt_switches" in line]


def about(pid: int, proc: Path = PROC) -> dict[str, object]:
    """Its name, the letter of its state, and its rank where it has one."""
    head = read(f"{pid}/stat", proc).rpartition(b")")[0]
    variables = dict(pair.split(b"=", 1) for pair in environment(pid, proc).split(b"\0") if b"=" in pair)
    rank = variables.get(b"OMPI_COMM_WORLD_RANK") or variables.get(b"PMIX_RANK") or b""
    return {
        "pid": pid,
        "name": head.partition(b"(")[2].decode(errors="replace"),
        "state": "".join(fields(pid, proc)[:1]),
        "rank": int(rank) if rank.isdigit() else None,
    }
