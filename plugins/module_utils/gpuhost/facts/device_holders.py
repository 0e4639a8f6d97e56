"""Processes that hold GPU devices open without a context: they may keep memory, and forbid a reset."""

from __future__ import annotations

import os
import re
import time

from ..host import Host

LIMIT_S, LONG_LIMIT_S = 0.25, 5.0  # of processor time; the long one before a GPU is changed
PERSISTENCE_DAEMON = "nvidia-persiste"  # the kernel cuts names after 15 characters; it yields to nvidia-smi
# Programs that keep GPUs open to watch or manage them, as the kernel cuts their names; a reboot does not harm them.
WATCHERS = frozenset(
    name[:15]
    for name in (
        "nvidia-persistenced",
        "nv-fabricmanager",
        "nvlsm",
        "nvidia-imex",
        "nv-hostengine",
        "dcgm-exporter",
        "nvidia-device-plugin",
        "gpu-feature-discovery",
        "nvidia-mig-manager",
        "nvidia-smi",
    )
)
_DEVICE = re.compile(r"/dev/nvidia(\d+)")


def read(host: Host, unread: dict[str, str], limit_s: float = LIMIT_S) -> dict[str, list[int]] | None:
    """Pid -> minor numbers of its GPUs; None if other users' descriptors are hidden, or if they are too many."""
    if not host.root and os.geteuid() != 0:
        unread["open_by"] = "only root sees who holds a device open"
        return None
    end = time.process_time() + limit_s
    holders: dict[str, list[int]] = {}
    for folder in host.glob("/proc/[0-9]*/fd"):
        if time.process_time() > end:
            unread["open_by"] = "too many processes to read in time"
            return None
        minors = _minors(host, folder)
        if minors:
            holders[folder.split("/")[2]] = minors
    return holders


def _minors(host: Host, folder: str) -> list[int]:
    try:
        targets = [host.readlink(f"{folder}/{name}") for name in os.listdir(host.real(folder))]
    except OSError:  # it has just ended
        return []
    return sorted({int(match.group(1)) for target in targets if (match := _DEVICE.fullmatch(target))})


def of_gpu(host: Host, uuid: str) -> list[str] | None:
    """Programs that have a GPU open, as "dcgm (pid 42)", without the persistence daemon; None if they are hidden."""
    from ..gpus import gpus  # slow to load, and few visits need it

    holders = read(host, {}, LONG_LIMIT_S)
    minor = next((gpu.minor for gpu in gpus(host) if gpu.uuid == uuid), None)
    if holders is None or minor is None:
        return None
    names = {pid: host.value(f"/proc/{pid}/comm") or "a program" for pid, minors in holders.items() if minor in minors}
    return [f"{name} (pid {pid})" for pid, name in sorted(names.items()) if not name.startswith(PERSISTENCE_DAEMON)]


def users(host: Host) -> tuple[list[str], str]:
    """Programs with a GPU open, as "python (pid 42)", without those that only watch GPUs; and why they are unknown."""
    unread: dict[str, str] = {}
    holders = read(host, unread, LONG_LIMIT_S)
    if holders is None:
        return [], unread["open_by"]
    names = {pid: host.value(f"/proc/{pid}/comm") or "a program" for pid in sorted(holders, key=int)}
    return [f"{name} (pid {pid})" for pid, name in names.items() if name not in WATCHERS], ""
