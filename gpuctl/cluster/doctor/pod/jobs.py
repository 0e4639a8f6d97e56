"""The training ranks that run in this pod, and their state."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import limits
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import variables

# Variables that hold a process's rank: torchrun and DeepSpeed, Open MPI, PMIx, PMI, Slurm.
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
WRAPPERS = ("sh", "bash", "dash", "env", "numactl", "timeout", "tini", "dumb-init", "srun", "orted", "prted")
TICKS = os.sysconf("SC_CLK_TCK")


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {ranks, hidden, age_s}. `age_s`: of the container. `hidden`: processes without readable variables.

    A rank: {rank, pid, name, state, wait, still, helpers, world, variables, memlock, age_s}. `still`: its first thread
    used no CPU time during the sample.
    """
    known = everybody(host)
    family = _family(known)
    chosen = _heads(host, family)
    before = {pid: _spent(host, pid) for pid in chosen.values()}
    time.sleep(float(request["sample_s"]))
    ranks = []
    for rank, pid in sorted(chosen.items()):
        state = _about(host, pid, before[pid])
        if state is not None:
            helpers = sum(number == rank for number in family.values()) - 1
            values = known[pid] or {}
            ranks.append({"rank": rank, "helpers": helpers, "world": _world(values), "variables": values, **state})
    hidden = sum(values is None for values in known.values())
    return {"ranks": ranks, "hidden": hidden, "age_s": _age(host, 1)}


def everybody(host: Host) -> dict[int, dict[str, str] | None]:
    """Return the variables of every process by PID; None if they are not readable."""
    pids = [int(path.split("/")[2]) for path in host.glob("/proc/[0-9]*/stat")]
    return {pid: variables.environment_of(host, pid) for pid in pids}


def heads(host: Host, known: Mapping[int, Mapping[str, str] | None]) -> list[int]:
    """Return the PIDs of the rank processes."""
    return list(_heads(host, _family(known)).values())


def _family(known: Mapping[int, Mapping[str, str] | None]) -> dict[int, int]:
    """Return the rank of each process, its own or inherited, by PID."""
    return {pid: rank for pid, values in known.items() if (rank := _rank(values or {})) is not None}


def _rank(values: Mapping[str, str]) -> int | None:
    return next((int(values[name]) for name in RANKS if values.get(name, "").isdigit()), None)


def _world(values: Mapping[str, str]) -> int | None:
    return next((int(values[name]) for name in SIZES if values.get(name, "").isdigit()), None)


def _heads(host: Host, family: Mapping[int, int]) -> dict[int, int]:
    """Return the PID of each rank: its eldest process that is no wrapper. Data loaders inherit the rank."""
    pids: dict[int, int] = {}
    for pid, rank in sorted(family.items(), key=lambda entry: _age_key(host, entry[0])):
        if rank not in pids and _name(host, pid) not in WRAPPERS:
            pids[rank] = pid
    return pids


def _age_key(host: Host, pid: int) -> tuple[int, int]:
    rest = _fields(host, pid)
    return (int(rest[19]) if len(rest) > 19 else 0, pid)


def _fields(host: Host, pid: int, at: str = "") -> list[str]:
    """Return the fields of /proc/PID/stat after the name, the state first; empty if the process has ended."""
    try:
        return host.read(f"/proc/{pid}{at}/stat").rpartition(")")[2].split()
    except OSError:
        return []


def _name(host: Host, pid: int) -> str:
    try:
        return host.read(f"/proc/{pid}/comm").strip()
    except OSError:
        return ""


def _spent(host: Host, pid: int) -> int:
    """Return the CPU ticks of the process's first thread."""
    return sum(map(int, _fields(host, pid, f"/task/{pid}")[11:13]))


def _about(host: Host, pid: int, before: int) -> dict[str, Any] | None:
    rest, now = _fields(host, pid), _spent(host, pid)
    if not rest:
        return None
    return {
        "pid": pid,
        "name": _name(host, pid),
        "state": rest[0],
        "wait": _wait(host, pid),
        "still": now == before,
        "memlock": memlock(host, pid),
        "age_s": _age(host, pid),
    }


def _age(host: Host, pid: int) -> int | None:
    """Return the process's age in seconds; None if the kernel does not report it."""
    up, rest = (host.read_or_none("/proc/uptime") or "").split(), _fields(host, pid)
    return max(0, round(float(up[0]) - int(rest[19]) / TICKS)) if up and rest else None


def _wait(host: Host, pid: int) -> str:
    """Return the kernel function that the process waits in; "" if the kernel does not report it."""
    try:
        function = host.read(f"/proc/{pid}/wchan").strip()
    except OSError:
        return ""
    return "" if function == "0" else function


def memlock(host: Host, pid: int | str) -> str | None:
    """Return the locked-memory limit in bytes, or "unlimited"; None if unknown."""
    try:
        limit = limits.soft_limit(host.read(f"/proc/{pid}/limits"), "Max locked memory")
    except OSError:
        return None
    return None if limit is None else str(limit)
