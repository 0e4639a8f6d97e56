"""Disks, memory, clock, processes and services of a node, as far as GPU jobs depend on them."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..host import Host

# On these a full or read-only file system stops jobs, logins or logging.
DISK_TYPES = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "vfat"})
# Of these only the mounts that every program shares.
MOUNTS = {"tmpfs": {"/dev/shm", "/tmp", "/run"}, "overlay": {"/"}}  # noqa: S108 - places, not files of ours
MOST_MOUNTS = 64
MOST_PROCESSES = 8
STUCK_S = 1.0
SERVICES = re.compile(r"nvidia|nv-hostengine|dcgm|fabricmanager|imex|kubelet|containerd|docker|crio|slurmd|munge|chrony"
                      r"|timesyncd|openibd|opensm|lustre|irqbalance|gpuctl")  # fmt: skip
KUBELET_HEALTH = ("127.0.0.1", 10248)
PLUGINS = "/var/lib/kubelet/device-plugins"
UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)
ERROR_STATE = 5  # TIME_ERROR of adjtimex(2)


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{disks, memory, edac, clock, uptime_s, stuck, zombies, failed_units, kubelet, unread}; see the functions."""
    unread: dict[str, str] = {}
    facts: dict[str, Any] = {}
    for name, source in SOURCES.items():
        try:
            facts[name] = source(host)
        except (OSError, ValueError, LookupError) as error:
            facts[name], unread[name] = None, _reason(error)
    return {**facts, "unread": unread}


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _disks(host: Host) -> list[dict[str, Any]]:
    """{path, type, read_only, free_percent, free_inodes_percent}: local file systems, each once.

    Percentages are None for file systems without a size.
    """
    disks: dict[tuple[str, str], dict[str, Any]] = {}
    for line in host.read("/proc/mounts").splitlines():
        device, path, kind, options = line.split()[:4]
        path = path.encode().decode("unicode_escape")
        place = path if kind in ("tmpfs", "overlay") else device
        relevant = kind in DISK_TYPES and (path in MOUNTS.get(kind, {path}))
        if relevant and (place, kind) not in disks and len(disks) < MOST_MOUNTS:
            read_only = "ro" in options.split(",")
            disks[place, kind] = {"path": path, "type": kind, "read_only": read_only, **_free(host, path)}
    if not disks:
        raise ValueError("/proc/mounts lists no local file system")
    return list(disks.values())


def _free(host: Host, path: str) -> dict[str, Any]:
    found = os.statvfs(host.real(path))
    return {
        "free_percent": round(100 * found.f_bavail / found.f_blocks, 1) if found.f_blocks else None,
        "free_inodes_percent": round(100 * found.f_favail / found.f_files, 1) if found.f_files else None,
    }


def _memory(host: Host) -> dict[str, int | None]:
    """{total_mib, available_mib, swap_used_mib, corrupted_mib}: the last is memory that the kernel took out of use."""
    kib = {
        name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", host.read("/proc/meminfo"), re.MULTILINE)
    }
    swap = None if "SwapTotal" not in kib else kib["SwapTotal"] - kib["SwapFree"]
    corrupted = kib.get("HardwareCorrupted")
    return {
        "total_mib": kib["MemTotal"] >> 10,
        "available_mib": kib["MemAvailable"] >> 10,
        "swap_used_mib": None if swap is None else swap >> 10,
        "corrupted_mib": None if corrupted is None else -(-corrupted >> 10),
    }


def _edac(host: Host) -> dict[str, int]:
    """{controllers, corrected, uncorrected}: errors of the host's memory since boot; no controllers, no counts."""
    folder = "/sys/devices/system/edac/mc"
    names = [name for name in host.listdir(folder) if re.fullmatch(r"mc\d+", name)]

    def total(file: str) -> int:
        return sum(int(host.value(f"{folder}/{name}/{file}") or "") for name in names)

    return {"controllers": len(names), "corrected": total("ce_count"), "uncorrected": total("ue_count")}


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2), as far as it is read; the rest is room."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_byte * 512),
    ]


def _clock(host: Host) -> dict[str, Any]:
    """{synchronised, most_wrong_ms}: as the program that sets the clock reports to the kernel."""
    if host.root:
        raise OSError("the clock of another root cannot be read")
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return {
        "synchronised": state != ERROR_STATE and not timex.status & UNSYNCHRONISED,
        "most_wrong_ms": round(timex.maxerror / 1000, 3),
    }


def _uptime(host: Host) -> float:
    return float(host.read("/proc/uptime").split()[0])


def _states(host: Host) -> Iterator[tuple[int, str, str]]:
    """(pid, name, state) of every process that can be seen."""
    for path in host.glob("/proc/[0-9]*/stat"):
        try:
            text = host.read_or_none(path) or ""
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        if rest.strip():
            yield int(path.split("/")[2]), name, rest.split()[0]


def _stuck(host: Host) -> dict[str, Any]:
    """{count, processes}: processes in uninterruptible sleep (state D) twice, a second apart.

    Only the end of their I/O can wake them; waiting for a disk, a healthy one is there for milliseconds.
    """
    if not host.exists("/proc/1/stat"):
        raise OSError("processes are hidden here")
    before = {pid for pid, _, state in _states(host) if state == "D"}
    if before:
        time.sleep(STUCK_S)
    stuck = [{"pid": pid, "name": name} for pid, name, state in _states(host) if state == "D" and pid in before]
    return {"count": len(stuck), "processes": stuck[:MOST_PROCESSES]}


def _zombies(host: Host) -> int:
    if not host.exists("/proc/1/stat"):
        raise OSError("processes are hidden here")
    return sum(state == "Z" for _, _, state in _states(host))


def _failed_units(host: Host) -> list[str]:
    """Services that GPU jobs depend on, and that systemd lists as failed."""
    result = host.run("systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager", limit=20)
    if not result.ok:
        raise OSError(result.last_line)
    units = [line.split()[0] for line in result.out.splitlines() if line.split()]
    if not all(re.search(r"\w\.[a-z]+$", unit) for unit in units):
        raise ValueError("the output of systemctl is not understood")
    return [unit for unit in units if SERVICES.search(unit)]


def _kubelet(host: Host) -> dict[str, Any]:
    """{runs, healthy, gpu_plugin}: the kubelet's own health, and whether a device plugin of NVIDIA is registered.

    `healthy` and `gpu_plugin` are None where no kubelet runs; `healthy` is None where its health port is closed.
    """
    if not any(name == "kubelet" for _, name, _ in _states(host)):
        return {"runs": False, "healthy": None, "gpu_plugin": None}
    sockets = host.listdir(PLUGINS)
    plugin = any("nvidia" in name and name.endswith(".sock") for name in sockets) if sockets else None
    return {"runs": True, "healthy": None if host.root else _healthy(), "gpu_plugin": plugin}


def _healthy() -> bool | None:
    import http.client  # slow to load, and most hosts run no kubelet

    connection = http.client.HTTPConnection(*KUBELET_HEALTH, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


SOURCES = {
    "disks": _disks,
    "memory": _memory,
    "edac": _edac,
    "clock": _clock,
    "uptime_s": _uptime,
    "stuck": _stuck,
    "zombies": _zombies,
    "failed_units": _failed_units,
    "kubelet": _kubelet,
}
