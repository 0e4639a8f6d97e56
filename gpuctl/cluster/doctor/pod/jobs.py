"""The ranks of a training that run in this pod, and what they do."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import limits
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import variables

# By which launchers tell a process its rank: torchrun and DeepSpeed, Open MPI, PMIx, PMI, Slurm.
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
WRAPPERS = ("sh", "bash", "dash", "env", "numactl", "timeout", "tini", "dumb-init", "srun", "orted", "prted")
TICKS = os.sysconf("SC_CLK_TCK")


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{ranks, hidden, age_s}. `age_s`: of the container. `hidden`: processes whose variables may not be read.

    A rank: {rank, pid, name, state, wait, still, helpers, world, variables, memlock, age_s}. `still`: its first thread
    did nothing over the moment.
    """
    known = everybody(host)
    family = _family(known)
    chosen = _heads(host, family)
    before = {pid: _spent(host, pid) for pid in chosen.values()}
    time.sleep(float(request["sample_s"]))
    ranks = []
    for rank, pid in sorted(chosen.items()):
        told = _about(host, pid, before[pid])
        if told is not None:
            helpers = sum(number == rank for number in family.values()) - 1
            own = known[pid] or {}
            ranks.append({"rank": rank, "helpers": helpers, "world": _world(own), "variables": own, **told})
    hidden = sum(own is None for own in known.values())
    return {"ranks": ranks, "hidden": hidden, "age_s": _age(host, 1)}


def everybody(host: Host) -> dict[int, dict[str, str] | None]:
    """Every process with its variables; None where they may not be read."""
    pids = [int(path.split("/")[2]) for path in host.glob("/proc/[0-9]*/stat")]
    return {pid: variables.of(host, pid) for pid in pids}


def heads(host: Host, known: Mapping[int, Mapping[str, str] | None]) -> list[int]:
    """The processes that are ranks."""
    return list(_heads(host, _family(known)).values())


def _family(known: Mapping[int, Mapping[str, str] | None]) -> dict[int, int]:
    """Process -> the rank it has, or has inherited."""
    return {pid: rank for pid, own in known.items() if (rank := _rank(own or {})) is not None}


def _rank(own: Mapping[str, str]) -> int | None:
    return next((int(own[name]) for name in RANKS if own.get(name, "").isdigit()), None)


def _world(own: Mapping[str, str]) -> int | None:
    return next((int(own[name]) for name in SIZES if own.get(name, "").isdigit()), None)


def _heads(host: Host, family: Mapping[int, int]) -> dict[int, int]:
    """Rank -> the process that is it: the eldest, which is no shell around it; its data loaders inherit the rank."""
    found: dict[int, int] = {}
    for pid, rank in sorted(family.items(), key=lambda each: _age_key(host, each[0])):
        if rank not in found and _name(host, pid) not in WRAPPERS:
            found[rank] = pid
    return found


def _age_key(host: Host, pid: int) -> tuple[int, int]:
    rest = _fields(host, pid)
    return (int(rest[19]) if len(rest) > 19 else 0, pid)


def _fields(host: Host, pid: int, at: str = "") -> list[str]:
    """Those of /proc/PID/stat after the name, of which the first is the state; empty where it has ended."""
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
    """Ticks of its first thread."""
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
    """Seconds since it began; None where the kernel does not tell."""
    up, rest = (host.read_or_none("/proc/uptime") or "").split(), _fields(host, pid)
    return max(0, round(float(up[0]) - int(rest[19]) / TICKS)) if up and rest else None


def _wait(host: Host, pid: int) -> str:
    """The kernel function it waits in; "" where the kernel does not tell."""
    try:
        found = host.read(f"/proc/{pid}/wchan").strip()
    except OSError:
        return ""
    return "" if found == "0" else found


def memlock(host: Host, pid: int | str) -> str | None:
    """What it may lock in bytes, or "unlimited"."""
    try:
        found = limits.soft_limit(host.read(f"/proc/{pid}/limits"), "Max locked memory")
    except OSError:
        return None
    return None if found is None else str(found)
