"""State and errors of NVLinks, from nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..host import Host

LIMIT_S = 60.0
_GPU = re.compile(r"^GPU (\d+): .*?(?:\(UUID: (\S+)\))?\s*$")
_SPEED = re.compile(r"^\s+Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|(<?inactive>?))\s*$", re.IGNORECASE)
_ERRORS = re.compile(r"^\s+Link (\d+)[:,] (.+?): (\d+)\s*$")
NONE = ("not have or support nvlink", "not supported for devices in mig mode", "nvlink is not supported")
ALL_INACTIVE = "all links are inactive"


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{gpus, unread}: {gpu, links, errors} for each GPU with NVLinks; see `parse` and `parse_errors`."""
    unread: dict[str, str] = {}
    status = host.run("nvidia-smi", "nvlink", "-s", limit=LIMIT_S)
    if not status.ok and ALL_INACTIVE not in status.out:
        unread["gpus"] = status.last_line
        return {"gpus": None, "unread": unread}
    gpus = parse(status.out, unread)
    if status.out.strip() and not gpus:
        return {"gpus": None, "unread": {"gpus": f"not understood: {status.out.strip().splitlines()[0][:200]}"}}
    if any(gpu["links"] for gpu in gpus):
        counted = host.run("nvidia-smi", "nvlink", "-e", limit=LIMIT_S)
        errors = parse_errors(counted.out) if counted.ok else {}
        for gpu in gpus:
            gpu["errors"] = errors.get(gpu["gpu"])
            if gpu["links"] and gpu["errors"] is None:
                unread[f"GPU {gpu['gpu']} errors"] = counted.last_line if not counted.ok else "nvidia-smi names none"
    return {"gpus": gpus, "unread": unread}


def parse(text: str, unread: dict[str, str]) -> list[dict[str, Any]]:
    """Links of each GPU: {number: GB/s}, 0 for one that is inactive; None if the GPU has none; "all" for all inactive.

    A sentence that is neither is a reason in `unread`. Under MIG the driver shows none.
    """
    gpus: list[dict[str, Any]] = []
    for line in text.splitlines():
        if head := _GPU.match(line):
            gpus.append({"gpu": int(head[1]), "links": None, "errors": None})
        elif gpus and (link := _SPEED.match(line)):
            gpus[-1]["links"] = {**(gpus[-1]["links"] or {}), link[1]: float(link[2]) if link[2] else 0.0}
        elif gpus and ALL_INACTIVE in line:
            gpus[-1]["links"] = {}
        elif gpus and line.strip() and not any(sentence in line.lower() for sentence in NONE):
            unread[f"GPU {gpus[-1]['gpu']} links"] = line.strip()[:200]
    return gpus


def parse_errors(text: str) -> dict[int, dict[str, int]]:
    """GPU -> {name of the counter: errors of all links}, since the driver was loaded."""
    found: dict[int, dict[str, int]] = {}
    gpu = None
    for line in text.splitlines():
        if head := _GPU.match(line):
            gpu = int(head[1])
        elif gpu is not None and (count := _ERRORS.match(line)):
            counters = found.setdefault(gpu, {})
            counters[count[2]] = counters.get(count[2], 0) + int(count[3])
    return found
