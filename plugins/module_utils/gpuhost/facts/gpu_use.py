"""Users of this host's GPUs: one run of nvidia-smi, then /proc and files of the runtimes for its processes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ..host import Host
from . import busy, device_holders, gpu_allocations, gpu_bus, gpu_xml, login, owner_names, process_details, processes

LIMIT_S = 60.0  # eight GPUs without persistence mode take ten seconds and more
MOST = 2000  # processes
AGAIN_S = 0.3  # a process that waits for a disk leaves state D within it
# Inodes of the namespaces that the kernel boots with (include/uapi/linux/nsfs.h).
INITIAL = {"pid": "pid:[4026531836]", "cgroup": "cgroup:[4026531835]"}
SLUID = "slurmstepd.scope/s"
# Memory that the driver itself may count as used, in MiB; before 510, also what it reserves.
UNUSED_MIB, OLD_UNUSED_MIB, RESERVED_APART = 256, 1024, 510


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `gpu_xml.parse`, and of the owners of its processes.

    `processes`: pid -> process_details.read, without those that are gone or hidden; None if `gpus` is. `now`: Unix time
    of this host.
    `pid_namespace`, `cgroup_namespace`: "initial", or "nested" in a container, which hides processes; None if unknown.
    `sees_all`: False if other users' processes are hidden (hidepid). `slurmd`, `kubelet`: True if they manage
    the host. `pod_devices`, `slurm_jobs`: see gpu_allocations. `pods`, `containers`, `sessions`, `users`: names by id,
    see owner_names. `open_by`: see device_holders; read only if memory is in use without a process, else {}.
    """
    unread: dict[str, str] = {}
    facts: dict[str, Any] = {**_machine(host, request, unread), **dict.fromkeys(("driver", "cuda", "attached", "gpus"))}
    result = host.run("nvidia-smi", "-q", "-x", limit=LIMIT_S)
    try:
        smi = gpu_xml.parse(result.out)
        unread.update(smi["unread"])
        facts.update({name: value for name, value in smi.items() if name != "unread"})
    except ValueError as error:
        unread["gpus"] = result.last_line if not result.ok else str(error)
    for name in ("driver", "cuda", "attached"):
        if facts[name] is None:
            unread.setdefault(name, unread.get("gpus", f"nvidia-smi names no {name}"))
    gpus = facts["gpus"] or []
    facts["open_by"] = device_holders.read(host, unread) if has_memory_in_use(facts) else {}
    if facts["gpus"] is None:
        facts["open_by"], unread["open_by"], unread["processes"] = None, unread["gpus"], unread["gpus"]
    pids = {row["pid"] for gpu in gpus for row in [*(gpu["processes"] or ()), *(gpu["displays"] or ())]}
    pids |= {int(pid) for pid in facts["open_by"] or ()}
    known = sorted(pid for pid in pids if pid is not None)
    facts["processes"] = None if facts["gpus"] is None else _processes(host, known, unread)
    facts["pod_devices"] = gpu_allocations.kubernetes(host, unread)
    facts["slurm_jobs"] = gpu_allocations.slurm(host, unread)
    facts.update(_names(host, facts, unread))
    return {**facts, "unread": unread}


def has_memory_in_use(facts: Mapping[str, Any]) -> bool:
    """True if memory of a GPU is in use, and no process is listed."""
    return any(
        not gpu["processes"] and not gpu["displays"] and (gpu["used_mib"] or 0) > unused_limit(facts["driver"])
        for gpu in facts["gpus"] or ()
    )


def unused_limit(driver: str | None) -> int:
    """MiB above which memory in use without a process is somebody's."""
    branch = (driver or "").partition(".")[0]
    return UNUSED_MIB if branch.isdigit() and int(branch) >= RESERVED_APART else OLD_UNUSED_MIB


def _machine(host: Host, request: Mapping[str, Any], unread: dict[str, str]) -> dict[str, Any]:
    """Identity of the host and of the login, and what they can see."""
    first, slurmd = _value(host, processes.FIRST), processes.count(host, "slurmd")
    if slurmd is None:
        unread["slurmd"] = processes.HIDDEN
    product = _value(host, "/sys/class/dmi/id/product_name")
    return {
        "hostname": _value(host, "/proc/sys/kernel/hostname") or (None if host.root else os.uname().nodename),
        "product": product,
        "login": login.login_user(host).name,
        "now": round(time.time()),
        "sees_all": first is not None,
        "slurmd": None if slurmd is None else slurmd > 0,
        "kubelet": host.exists(busy.KUBELET),
        "on_bus": gpu_bus.count(host, unread),
        **{f"{name}_namespace": _namespace(host, name) for name in INITIAL},
    }


def _value(host: Host, path: str) -> str | None:
    try:
        return host.value(path) or None
    except OSError:
        return None


def _namespace(host: Host, name: str) -> str | None:
    try:
        return "initial" if host.readlink(f"/proc/self/ns/{name}") == INITIAL[name] else "nested"
    except OSError:
        return None


def _processes(host: Host, pids: list[int], unread: dict[str, str]) -> dict[str, dict[str, Any]] | None:
    """Facts of processes by their pids; None if none of them can be read."""
    if len(pids) > MOST:
        unread["processes"] = f"only {MOST} of {len(pids)} processes were read"
    boot = process_details.boot_time(host)
    details = _details(host, pids[:MOST], boot, unread)
    blocked = [int(pid) for pid, one in details.items() if one and one["state"] == process_details.BLOCKED]
    if blocked:
        time.sleep(AGAIN_S)
        details.update(_details(host, blocked, boot, unread))
    return {pid: one for pid, one in details.items() if one is not None} if details or not pids else None


def _details(host: Host, pids: list[int], boot: int | None, unread: dict[str, str]) -> dict[str, dict[str, Any] | None]:
    """Facts by pid; without those that cannot be read."""
    details = {}
    for pid in pids:
        try:
            details[str(pid)] = process_details.read(host, pid, boot)
        except OSError as error:
            unread["processes"] = f"{error.filename}: {error.strerror}"
    return details


def _names(host: Host, facts: Mapping[str, Any], unread: dict[str, str]) -> dict[str, Any]:
    details = (facts["processes"] or {}).values()
    cgroups = "\n".join(f"{one['cgroup'] or ''}\n{one['mounts']}" for one in details)
    uids = {one[name] for one in details for name in ("uid", "login_uid")} - {None}
    return {
        "pods": owner_names.pods(host, cgroups, (row["pod"] for row in facts["pod_devices"] or ()), unread),
        "containers": owner_names.containers(host, cgroups, unread),
        "sessions": owner_names.sessions(host, cgroups, unread),
        "users": owner_names.users(host, sorted(uids)),
        "slurm_pids": gpu_allocations.pids_of_sluids(host, unread) if SLUID in cgroups else {},
    }
