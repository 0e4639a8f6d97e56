"""How full the folders of a pod are, and what each is on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

ANSWER_S = 5.0  # a share whose server is gone lets those who ask wait for ever


def read(host: Host, request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Path -> {size, free, inodes, inodes_free, type, source}, bytes; or {missing}, or {why} it cannot be told.

    {late, type, source} where it gives no answer.
    """
    mounts, paths = _mounts(host), list(dict.fromkeys(request["folders"]))
    pool, end = ThreadPoolExecutor(len(paths)), time.monotonic() + ANSWER_S
    jobs = {path: pool.submit(_folder, host, path, mounts) for path in paths}
    found = {}
    for path, job in jobs.items():
        try:
            found[path] = job.result(max(0.0, end - time.monotonic()))
        except Late:
            kind, source = _on(path, mounts)
            found[path] = {"late": ANSWER_S, "type": kind, "source": source}
    pool.shutdown(wait=False)
    return found


def _folder(host: Host, path: str, mounts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    try:
        told = os.statvfs(host.real(path))
    except FileNotFoundError:
        return {"missing": True}
    except OSError as error:
        return {"why": error.strerror or str(error)}
    kind, source = _on(path, mounts)
    size, free = told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
    return {
        "size": size,
        "free": free,
        "inodes": told.f_files,
        "inodes_free": told.f_favail,
        "type": kind,
        "source": source,
    }


def _on(path: str, mounts: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The mount that a path is on: the one with the longest way to it."""
    here = [at for at in mounts if at in ("/", path) or path.startswith(f"{at}/")]
    return mounts[max(here, key=len)] if here else ("", "")


def _mounts(host: Host) -> dict[str, tuple[str, str]]:
    """Where -> (kind, what); of several at one place the last holds."""
    rows = (line.split() for line in (host.read_or_none("/proc/self/mounts") or "").splitlines())
    return {row[1].replace("\\040", " "): (row[2], row[0]) for row in rows if len(row) > 2}
