"""Free space of a pod's folders, and their file systems."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

ANSWER_S = 5.0  # statvfs on a share whose server is gone blocks forever


def read(host: Host, request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, by path, {size, free, inodes, inodes_free, type, source} in bytes.

    {missing} if the folder does not exist, {why} after an error, {late, type, source} if it does not answer.
    """
    mounts, paths = _mounts(host), list(dict.fromkeys(request["folders"]))
    pool, end = ThreadPoolExecutor(len(paths)), time.monotonic() + ANSWER_S
    jobs = {path: pool.submit(_folder, host, path, mounts) for path in paths}
    folders = {}
    for path, job in jobs.items():
        try:
            folders[path] = job.result(max(0.0, end - time.monotonic()))
        except Late:
            kind, source = _on(path, mounts)
            folders[path] = {"late": ANSWER_S, "type": kind, "source": source}
    pool.shutdown(wait=False)
    return folders


def _folder(host: Host, path: str, mounts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    try:
        usage = os.statvfs(host.real(path))
    except FileNotFoundError:
        return {"missing": True}
    except OSError as error:
        return {"why": error.strerror or str(error)}
    kind, source = _on(path, mounts)
    size, free = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
    return {
        "size": size,
        "free": free,
        "inodes": usage.f_files,
        "inodes_free": usage.f_favail,
        "type": kind,
        "source": source,
    }


def _on(path: str, mounts: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """Return (type, source) of the mount that holds a path: the deepest mount point above it."""
    mount_points = [at for at in mounts if at in ("/", path) or path.startswith(f"{at}/")]
    return mounts[max(mount_points, key=len)] if mount_points else ("", "")


def _mounts(host: Host) -> dict[str, tuple[str, str]]:
    """Mount point -> (type, source); the last one mounted at a place counts."""
    rows = (line.split() for line in (host.read_or_none("/proc/self/mounts") or "").splitlines())
    return {row[1].replace("\\040", " "): (row[2], row[0]) for row in rows if len(row) > 2}
