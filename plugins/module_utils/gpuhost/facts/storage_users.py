"""Processes that have files open below some folders, those open for writing, and what they read and write."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..host import Host
from . import io_counters

MOST_USERS, MOST_DESCRIPTORS = 16, 512
USERS_S = 3.0


def read(host: Host, folders: Iterable[str]) -> tuple[dict[str, dict[str, Any]], int]:
    """Process number -> {name, is_writer, written, counters} of those with files open below a folder; hidden ones.

    `written`: files that it has open for writing.
    """
    prefixes = tuple(folder.rstrip("/") + "/" for folder in folders)
    processes: dict[str, dict[str, Any]] = {}
    hidden = 0
    numbers = sorted((int(name) for name in host.listdir("/proc") if name.isdigit()), reverse=True)  # jobs are young
    end = time.monotonic() + USERS_S
    for pid in map(str, numbers if prefixes else ()):
        if pid == str(os.getpid()):
            continue
        if time.monotonic() > end:
            hidden += 1
            continue
        try:
            descriptors = os.listdir(host.real(f"/proc/{pid}/fd"))[:MOST_DESCRIPTORS]
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        links = {descriptor: _link(host, pid, descriptor) for descriptor in descriptors}
        files = {descriptor: link for descriptor, link in links.items() if link.startswith(prefixes)}
        if files:
            written = [link for descriptor, link in files.items() if _writes(host, pid, descriptor)]
            io = io_counters.numbers(_safely(host, f"/proc/{pid}/io"))
            counters = {"read_bytes": io.get("rchar"), "written_bytes": io.get("wchar")}
            processes[pid] = {
                "name": (_safely(host, f"/proc/{pid}/comm") or "?").strip(),
                "is_writer": bool(written),
                "written": written,
                "counters": {name: value for name, value in counters.items() if value is not None},
            }
    return processes, hidden


def _link(host: Host, pid: str, descriptor: str) -> str:
    try:
        return host.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return ""


def _writes(host: Host, pid: str, descriptor: str) -> bool:
    for line in (_safely(host, f"/proc/{pid}/fdinfo/{descriptor}") or "").splitlines():
        if line.startswith("flags:"):
            return bool(int(line.split()[1], 8) & os.O_ACCMODE)
    return False


def _safely(host: Host, path: str) -> str | None:
    try:
        return host.read_or_none(path)
    except OSError:
        return None


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rises between two readings, those that moved most first. Counters are of all files of a process."""
    users = [
        {
            "pid": int(pid),
            "name": process["name"],
            "is_writer": process["is_writer"],
            **dict.fromkeys(("read_bytes", "written_bytes")),
            **io_counters.change(before[pid]["counters"], process["counters"]),
        }
        for pid, process in after.items()
        if pid in before
    ]
    users.sort(key=lambda user: -((user["read_bytes"] or 0) + (user["written_bytes"] or 0)))
    return users[:MOST_USERS]
