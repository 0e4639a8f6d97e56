"""Limits of control groups on the reads and writes of a disk, and what their processes have used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..host import Host

GROUPS = "/sys/fs/cgroup"
# Name here -> key of io.max, and file of version 1.
LIMITS = {
    "read_bytes": ("rbps", "blkio.throttle.read_bps_device"),
    "written_bytes": ("wbps", "blkio.throttle.write_bps_device"),
    "reads": ("riops", "blkio.throttle.read_iops_device"),
    "writes": ("wiops", "blkio.throttle.write_iops_device"),
}
# Name here -> key of io.stat, and file and word of version 1.
USED = {
    "read_bytes": ("rbytes", "blkio.throttle.io_service_bytes_recursive", "Read"),
    "written_bytes": ("wbytes", "blkio.throttle.io_service_bytes_recursive", "Write"),
    "reads": ("rios", "blkio.throttle.io_serviced_recursive", "Read"),
    "writes": ("wios", "blkio.throttle.io_serviced_recursive", "Write"),
}


def read(host: Host, pids: Iterable[str], devices: Iterable[str] | None) -> list[dict[str, Any]]:
    """[{group, device, limits, used}] of the control groups of these processes, and of those above them.

    `limits`: per second, by the names of LIMITS, only those that are set. `used`: counters by the same names.
    `devices`: only limits on these, "254:0"; None for all.
    """
    folders = dict.fromkeys(folder for pid in pids for folder in _folders(host, pid))
    limits = [limit for folder in folders for limit in _limits(host, folder)]
    wanted = None if devices is None else set(devices)
    return [limit for limit in limits if wanted is None or limit["device"] in wanted]


def _folders(host: Host, pid: str) -> list[str]:
    """Folders of a process's control groups, with those above."""
    folders = []
    for line in (host.read_or_none(f"/proc/{pid}/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "blkio" not in controllers.split(","):
            continue
        top = f"{GROUPS}/blkio" if controllers else GROUPS
        parts = [part for part in path.split("/") if part and part != ".."]
        folders += ["/".join((top, *parts[:count])) for count in range(len(parts), -1, -1)]
    return folders


def _limits(host: Host, folder: str) -> list[dict[str, Any]]:
    group = folder[len(GROUPS) :].replace("/blkio", "", 1) or "/"
    by_device: dict[str, dict[str, int]] = {}
    for device, values in _rows(_text(host, f"{folder}/io.max")):
        limits = {name: int(values[key]) for name, (key, _) in LIMITS.items() if values.get(key, "max") != "max"}
        by_device.update({device: limits} if limits else {})
    for name, (_, file) in LIMITS.items():
        for device, value in re.findall(r"^(\d+:\d+) (\d+)$", _text(host, f"{folder}/{file}"), re.MULTILINE):
            by_device.setdefault(device, {})[name] = int(value)
    return [
        {"group": group, "device": device, "limits": limits, "used": _used(host, folder, device)}
        for device, limits in by_device.items()
    ]


def _used(host: Host, folder: str, device: str) -> dict[str, int]:
    stat = dict(_rows(_text(host, f"{folder}/io.stat"))).get(device, {})
    used = {name: int(stat[key]) for name, (key, _, _) in USED.items() if key in stat}
    for name, (_, file, word) in USED.items():
        match = re.search(rf"^{device} {word} (\d+)$", _text(host, f"{folder}/{file}"), re.MULTILINE)
        if match:
            used.setdefault(name, int(match[1]))
    return used


def _rows(text: str) -> list[tuple[str, dict[str, str]]]:
    """Rows such as "254:0 rbps=1048576 wbps=max"."""
    rows = (line.split() for line in text.splitlines())
    return [(row[0], dict(cell.split("=", 1) for cell in row[1:] if "=" in cell)) for row in rows if row]


def _text(host: Host, path: str) -> str:
    try:
        return host.read_or_none(path) or ""
    except OSError:
        return ""
