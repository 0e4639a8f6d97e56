"""What ranks last wrote of NCCL, in files: asked for apart from the ranks, for a file may be on a share that hangs."""

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
WAYS = re.compile(r"NET/\w+ ?: Using|Using network |NET/OFI Selected|via NET/")
TAIL = 1 << 18  # bytes at the end of a file that are looked at
WORST, NETWORK = 40, 20  # lines of each file that are told: at a start those on the network are thousands


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{files}: each {live, age_s, lines}: `live`: a rank writes to it; `age_s`: since it was last written to."""
    known = jobs.everybody(host)
    live = _written(host, jobs.heads(host, known), known)
    kept = [path for path in _kept(host, request.get("runs", "")) if path not in live]
    files = [_file(path, live=True) for path in live] + [_file(path, live=False) for path in kept]
    return {"files": [each for each in files if each["lines"]]}


def _file(path: str, *, live: bool) -> dict[str, Any]:
    age: float | None = None
    with contextlib.suppress(OSError):
        age = max(0, round(time.time() - Path(path).stat().st_mtime))
    found = [line[:400] for line in _tail(path)]
    worst = [line for line in found if SEVERE.search(line)][-WORST:]
    ways = [line for line in found if WAYS.search(line) and not SEVERE.search(line)][-NETWORK:]
    return {"live": live, "age_s": age, "lines": [*ways, *worst]}


def _written(host: Host, pids: Iterable[int], known: Mapping[int, Mapping[str, str] | None]) -> list[str]:
    """The files that ranks write to: their output, and NCCL's own."""
    paths: dict[str, None] = {}
    for pid in pids:
        paths.update(dict.fromkeys(_outputs(host, pid)))
        named = (known.get(pid) or {}).get("NCCL_DEBUG_FILE", "")
        paths.update(dict.fromkeys(host.real(path) for path in host.glob(re.sub(r"%[hp]", "*", named)) if named))
    return list(paths)


def _kept(host: Host, runs: str) -> list[str]:
    """What `gpuctl cluster train` keeps of the newest training: its output goes to no other file."""
    logs: dict[str, float] = {}
    for path in host.glob(f"{runs}/*/log-*") if runs else ():
        with contextlib.suppress(OSError):  # an old one may just be removed
            logs[path] = Path(host.real(path)).stat().st_mtime
    newest = max(logs, key=lambda path: logs[path], default="")
    return [host.real(path) for path in logs if path.rpartition("/")[0] == newest.rpartition("/")[0]]


def _outputs(host: Host, pid: int) -> list[str]:
    found = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = Path(host.real(f"/proc/{pid}/fd/{number}")).resolve()
            if path.is_file():
                found.append(str(path))
    return found


def _tail(path: str) -> list[str]:
    try:
        with Path(path).open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL))
            return stream.read(TAIL).decode(errors="replace").splitlines()
    except OSError:
        return []
