"""Runs on a node: finds the processes of a launch by a mark in their environment, and ends them if requested.

It is also sent there as text (gpuctl/remote/payload.py), so it imports nothing of this package.
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
GENTLE_S = 1.5  # until ranks get SIGKILL
# Launchers end, and remove their files, once their ranks are gone; a second SIGTERM would prevent that.
LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "prte", "orted", "prted", "ssh")
ALONE_S, LAUNCHER_S = 3.0, 6.0  # until launchers get SIGTERM, and SIGKILL
PROC = Path("/proc")
PF_EXITING = 0x4  # a process flag of the kernel
DEAD_STATES = ("Z", "X")


def main(request: dict[str, Any]) -> None:
    """Print the marked line with the processes of the launch; with `end`, end them and print those that are left.

    Request: mark (prefix of the answer's line), variable ("NAME=VALUE" in their environment), end.
    """
    variable = request["variable"].encode()
    answer = {"left": end(variable)} if request["end"] else {"processes": observe(variable)}
    sys.stdout.write("\n" + request["mark"] + json.dumps(answer) + "\n")


def observe(variable: bytes) -> list[dict[str, object]]:
    """Processes with the variable in their environment; `still`: the first thread did not run meanwhile."""
    before = {pid: activity(pid) for pid in marked(variable)}
    time.sleep(LOOK_S)
    return [dict(describe(pid), still=then == activity(pid)) for pid, then in before.items()]


def end(variable: bytes, patience_s: float = PATIENCE_S, proc: Path = PROC) -> list[dict[str, object]]:
    """End the processes, by SIGTERM first; return those that are left after `patience_s`.

    An exiting process loses its environment early, and may then wait for a driver forever. So processes of our
    user that are already exiting count too, as they may belong to the launch.
    """
    started, ours, exiting = time.monotonic(), marked(variable, proc), exiting_processes(proc)
    signalled: set[int] = set()
    while (ours or exiting) and time.monotonic() - started < patience_s:
        for pid in ours:
            for number in signals(
                describe(pid, proc)["name"] in LAUNCHERS, pid in signalled, time.monotonic() - started
            ):
                signalled.add(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        time.sleep(0.1)
        ours = {**remaining(ours, proc), **marked(variable, proc)}
        exiting = remaining(exiting, proc)
    return [describe(pid, proc) for pid in {**exiting, **ours}]


def signals(launcher: bool, signalled: bool, since_s: float) -> tuple[signal.Signals, ...]:
    """Signals to send to a process at this time; `signalled`: it has received one."""
    if since_s >= (LAUNCHER_S if launcher else GENTLE_S):
        return (signal.SIGKILL,)
    if signalled or (launcher and since_s < ALONE_S):
        return ()
    return (signal.SIGTERM, signal.SIGCONT)


def marked(variable: bytes, proc: Path = PROC) -> dict[int, str]:
    """Processes with the variable in their environment -> start time, as process ids are reused."""
    # The start time is read first: if the id is reused in between, it belongs to a process that is gone.
    started = {pid: start_ticks(pid, proc) for pid in process_ids(proc)}
    return {pid: when for pid, when in started.items() if variable in environment(pid, proc).split(b"\0")}


def exiting_processes(proc: Path = PROC) -> dict[int, str]:
    """Processes of our user that are exiting and have lost their environment -> start time."""
    own_ids = (pid for pid in process_ids(proc) if is_exiting(pid, proc) and owner(pid, proc) == os.geteuid())
    started = {pid: start_ticks(pid, proc) for pid in own_ids}
    return {pid: when for pid, when in remaining(started, proc).items() if not environment(pid, proc)}


def is_exiting(pid: int, proc: Path = PROC) -> bool:
    """True if its first thread is exiting."""
    flags = fields(pid, proc)[6:7]
    return bool(flags) and bool(int(flags[0]) & PF_EXITING)


def remaining(started: dict[int, str], proc: Path = PROC) -> dict[int, str]:
    """Processes that have not ended. A zombie has ended, unless other threads of it are alive."""
    return {pid: when for pid, when in started.items() if start_ticks(pid, proc) == when and is_alive(pid, proc)}


def is_alive(pid: int, proc: Path = PROC) -> bool:
    """True if any of its threads is alive."""
    states = [fields(int(thread), proc, f"{pid}/task")[:1] for thread in threads(pid, proc)]
    return any(state and state[0] not in DEAD_STATES for state in states)


def start_ticks(pid: int, proc: Path = PROC) -> str:
    """Start time in ticks since boot; "" if there is no such process."""
    return "".join(fields(pid, proc)[19:20])


def process_ids(proc: Path = PROC) -> list[int]:
    """The ids of all processes."""
    return [int(folder.name) for folder in proc.iterdir() if folder.name.isdigit()]


def threads(pid: int, proc: Path = PROC) -> list[str]:
    """Thread ids of a process; empty if it has ended."""
    try:
        return os.listdir(proc / str(pid) / "task")
    except OSError:
        return []


def owner(pid: int, proc: Path = PROC) -> int | None:
    """User id of a process; None if it has ended."""
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


def environment(pid: int, proc: Path = PROC) -> bytes:
    """Initial environment; from another thread if the first one has ended."""
    first = read(f"{pid}/environ", proc)
    return first or next(
        filter(None, (read(f"{pid}/task/{thread}/environ", proc) for thread in threads(pid, proc))), b""
    )


def fields(pid: int, proc: Path = PROC, folder: str = "") -> list[str]:
    """The fields of /proc/PID/stat after the name, starting with the state."""
    return read(f"{folder}/{pid}/stat".lstrip("/"), proc).rpartition(b")")[2].decode().split()


def read(name: str, proc: Path = PROC) -> bytes:
    """A file below /proc; empty if its process has ended, or belongs to another user."""
    try:
        return (proc / name).read_bytes()
    except OSError:
        return b""


def activity(pid: int) -> list[str]:
    """Processor time and context switches of its first thread: they change as soon as it runs."""
    status = read(f"{pid}/task/{pid}/status").decode(errors="replace").splitlines()
    return fields(pid, folder=f"{pid}/task")[11:13] + [line for line in status if "ctxt_switches" in line]


def describe(pid: int, proc: Path = PROC) -> dict[str, object]:
    """{pid, name, state (one letter), rank or None}."""
    head = read(f"{pid}/stat", proc).rpartition(b")")[0]
    variables = dict(pair.split(b"=", 1) for pair in environment(pid, proc).split(b"\0") if b"=" in pair)
    rank = variables.get(b"OMPI_COMM_WORLD_RANK") or variables.get(b"PMIX_RANK") or b""
    return {
        "pid": pid,
        "name": head.partition(b"(")[2].decode(errors="replace"),
        "state": "".join(fields(pid, proc)[:1]),
        "rank": int(rank) if rank.isdigit() else None,
    }
