"""Last NCCL messages in files that ranks write; a subject of its own, because a file may be on a share that hangs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import jobs

SEVERE = re.compile(r"NCCL (?:WARN|ERROR) |Watchdog caught")
NETWORK_CHOICE = re.compile(r"NET/\w+ ?: Using|Using network |NET/OFI Selected|via NET/")
TAIL = 1 << 18  # bytes read from the end of a file
WORST, NETWORK = 40, 20  # lines reported per file: a start writes thousands of lines about the network


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {files}, each {live, age_s, lines}. `live`: a rank has it open. `age_s`: since the last write."""
    known = jobs.everybody(host)
    live = _written(host, jobs.heads(host, known), known)
    kept = [path for path in _kept(host, request.get("runs", "")) if path not in live]
    files = [_file(path, live=True) for path in live] + [_file(path, live=False) for path in kept]
    return {"files": [file for file in files if file["lines"]]}


def _file(path: str, *, live: bool) -> dict[str, Any]:
    age: float | None = None
    with contextlib.suppress(OSError):
        age = max(0, round(time.time() - Path(path).stat().st_mtime))
    lines = [line[:400] for line in _tail(path)]
    worst = [line for line in lines if SEVERE.search(line)][-WORST:]
    network = [line for line in lines if NETWORK_CHOICE.search(line) and not SEVERE.search(line)][-NETWORK:]
    return {"live": live, "age_s": age, "lines": [*network, *worst]}


def _written(host: Host, pids: Iterable[int], known: Mapping[int, Mapping[str, str] | None]) -> list[str]:
    """Return the files that ranks write: their output, and NCCL_DEBUG_FILE."""
    paths: dict[str, None] = {}
    for pid in pids:
        paths.update(dict.fromkeys(_outputs(host, pid)))
        named = (known.get(pid) or {}).get("NCCL_DEBUG_FILE", "")
        paths.update(dict.fromkeys(host.real(path) for path in host.glob(re.sub(r"%[hp]", "*", named)) if named))
    return list(paths)


def _kept(host: Host, runs: str) -> list[str]:
    """Return the logs that `gpuctl cluster train` keeps of the newest training."""
    logs: dict[str, float] = {}
    for path in host.glob(f"{runs}/*/log-*") if runs else ():
        with contextlib.suppress(OSError):  # an old log may be removed meanwhile
            logs[path] = Path(host.real(path)).stat().st_mtime
    newest = max(logs, key=lambda path: logs[path], default="")
    return [host.real(path) for path in logs if path.rpartition("/")[0] == newest.rpartition("/")[0]]


def _outputs(host: Host, pid: int) -> list[str]:
    paths = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = Path(host.real(f"/proc/{pid}/fd/{number}")).resolve()
            if path.is_file():
                paths.append(str(path))
    return paths


def _tail(path: str) -> list[str]:
    try:
        with Path(path).open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL))
            return stream.read(TAIL).decode(errors="replace").splitlines()
    except OSError:
        return []
