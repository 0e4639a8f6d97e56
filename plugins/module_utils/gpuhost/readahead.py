"""Read-ahead of block devices; values are raised, never lowered, as arrays choose larger ones themselves."""

from __future__ import annotations

import re

from .host import Host

# Disks, arrays and volumes; not loop devices, RAM disks and optical drives.
DISKS = re.compile(r"(nvme|sd|vd|xvd|md|dm-)\w+")


def too_small(host: Host, kib: int) -> dict[str, str]:
    """File -> its value, of each device that reads less than `kib` KiB ahead."""
    found = {}
    for name in host.listdir("/sys/block"):
        path = f"/sys/block/{name}/queue/read_ahead_kb"
        now = host.value(path) if DISKS.fullmatch(name) else None
        if now is not None and int(now) < kib:
            found[path] = now
    return found


def smallest(host: Host) -> int | None:
    """The smallest read-ahead of all devices in KiB; None if there is no device."""
    return min((int(now) for now in too_small(host, 1 << 62).values()), default=None)
