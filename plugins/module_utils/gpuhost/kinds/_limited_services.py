"""Limits of running services; a service keeps the limits that it was started with."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..host import Host
from ..resources.unit import FOLDERS
from ._limit_files import Item

# Control groups version 2, and version 1. Instances of a template have a slice below.
GROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
Limits = Mapping[str, str]  # "Max open files" -> "1024:524288" (soft:hard), or one number if both are equal


def limits_of(host: Host, process: str) -> dict[str, str]:
    """Limits of a process in the kernel; empty if it has ended."""
    text = host.read_or_none(f"/proc/{process}/limits") or ""
    rows = re.findall(r"^(Max .+?)\s{2,}(\S+)\s+(\S+)", text, re.MULTILINE)
    return {name: soft if soft == hard else f"{soft}:{hard}" for name, soft, hard in rows}


def running(host: Host) -> dict[str, Limits]:
    """Service -> the limits of its first process."""
    patterns = [f"{group}/{inner}*.service/cgroup.procs" for group in GROUPS for inner in ("", "system-*.slice/")]
    limits: dict[str, Limits] = {}
    for path in (path for pattern in patterns for path in host.glob(pattern)):
        pids = (host.read_or_none(path) or "").split()
        limits[path.split("/")[-2]] = limits_of(host, pids[0]) if pids else {}
    return limits


def note(host: Host, services: Mapping[str, Limits], item: Item, desired: str) -> tuple[str, ...]:
    """A note that names services whose limit differs from the one they would get now."""
    others = [name for name, limits in services.items() if limits.get(item.proc, desired) != desired]
    old = [name for name in others if not sets_limit(host, name, item)]
    if not old:
        return ()
    more = f" and {len(old) - 5} more" if len(old) > 5 else ""
    return (f"until they are restarted, these keep another {item.pam} limit: {', '.join(old[:5])}{more}",)


def sets_limit(host: Host, service: str, item: Item) -> bool:
    """True if the unit sets the limit itself, so that the manager's default does not apply."""
    names = dict.fromkeys((service, re.sub(r"@.*\.", "@.", service), "service"))
    paths = [f"{folder}/{name}" for folder in FOLDERS for name in names]
    paths += [drop_in for path in paths for drop_in in host.glob(f"{path}.d/*.conf")]
    return any(re.search(rf"^{item.directive}=\S", host.read_or_none(path) or "", re.MULTILINE) for path in paths)
