"""GPUDirect Storage: the report of gdscheck, and the operations that nvidia-fs has counted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..host import Host
from ..safe_program import on_host, unsafe
from . import busy

if TYPE_CHECKING:
    from .answer_types import GdsCheck, GdsCounters, GdsFacts

# Of gds-tools, in the CUDA toolkit that /usr/local/cuda names, or in a package without a toolkit; the last are newer.
TOOLS = ("/usr/local/cuda/gds/tools", "/usr/local/cuda-*/gds/tools", "/usr/libexec/gds/tools")
PROGRAMS = ("gdscheck", "gdscheck.py")
STATS = "/proc/driver/nvidia-fs/stats"
LIMIT_S = 60.0  # it starts CUDA on every GPU
_DRIVER = re.compile(r"^ *([A-Z][\w ]+?) +: (Supported|Unsupported) *$", re.MULTILINE)
_GPU = re.compile(r"^ *GPU index (\d+) (.*)$", re.MULTILINE)
_VERIFIED = "Platform verification succeeded"


def read(host: Host, request: Mapping[str, Any]) -> GdsFacts:
    """{check, counters}: report of gdscheck, and counters of nvidia-fs; None if unknown."""
    unread: dict[str, str] = {}
    return {"check": _check(host, unread), "counters": _counters(host, unread), "unread": unread}


def _check(host: Host, unread: dict[str, str]) -> GdsCheck | None:
    program, wrong = _program(host)
    if not wrong:
        # It starts CUDA on every GPU, which jobs would feel.
        wrong = next((f"jobs run: {reason}" for reason in busy.busy(host)), "")
    if wrong:
        unread["check"] = wrong
        return None
    result = host.run(program, "-p", limit=LIMIT_S)
    report = parse(f"{result.out}\n{result.err}")
    if report is None:
        unread["check"] = f"gdscheck -p: {result.last_line or 'no output'}"
    elif report["is_verified"] and not result.ok:
        unread["check"] = f"gdscheck -p ended with exit status {result.code} after its success line"
        return None
    return report


def hindrance(host: Host) -> str:
    """Why gdscheck cannot be run on this host; "" if it can."""
    return _program(host)[1]


def _program(host: Host) -> tuple[str, str]:
    """Path of gdscheck, and why it must not be run."""
    folders = [folder for pattern in TOOLS for folder in sorted(host.glob(pattern), reverse=True)]
    program = next((path for folder in folders for name in PROGRAMS if host.exists(path := f"{folder}/{name}")), None)
    if program is None:
        return "", "gdscheck is not installed"
    # The resolved path is run, as a link on the way to it may be replaced after the check.
    real = os.path.realpath(host.real(program))
    if wrong := unsafe(host, real):
        return "", f"{program} is not run, as {wrong}: give it and its folders to root, writable by root alone"
    return on_host(host, real), ""


def parse(text: str) -> GdsCheck | None:
    """Report of `gdscheck -p`; None if it is not understood. `gpus`: those that it lists; `gpus_without`: those of them
    that it does not call supported.

    `supported`: storage drivers, with "NVMe P2PDMA", which needs no nvidia-fs; `is_compat_forced`: True if the
    configuration sends all I/O through host memory, None without this line. Warnings may precede the report.
    """
    drivers, gpus = _DRIVER.findall(text), _GPU.findall(text)
    if not drivers or not gpus:
        return None
    forced = re.search(r"^ *properties\.force_compat_mode : (true|false)\s*$", text, re.MULTILINE)
    return {
        "is_verified": _VERIFIED in text,
        "supported": [name for name, state in drivers if state == "Supported"],
        "is_compat_forced": None if forced is None else forced[1] == "true",
        "gpus": len({index for index, _ in gpus}),
        "gpus_without": [f"{index} {rest.strip()}" for index, rest in gpus if "supports GDS" not in rest],
    }


def _counters(host: Host, unread: dict[str, str]) -> GdsCounters | None:
    text = host.read_or_none(STATS)
    found = None if text is None else counters(text)
    if found is None:
        unread["counters"] = f"{STATS} is {'missing' if text is None else 'not understood'}"
    return found


def counters(text: str) -> GdsCounters | None:
    """Operations since nvidia-fs was loaded; None if the text is not understood.

    `reads` and `writes`: completed ones, None while the module does not count them (its parameter rw_stats_enabled);
    `active`: those that run now. Source: NVIDIA/gds-nvidia-fs src/nvfs-stat.c.
    """
    ops = re.search(r"^Ops\s*: Read=(\d+) Write=(\d+)", text, re.MULTILINE)
    if ops is None:
        return None
    done = {name: re.search(rf"^{name}\s*: n=\d+ ok=(\d+) ", text, re.MULTILINE) for name in ("Reads", "Writes")}
    reads, writes = (None if match is None else int(match[1]) for match in done.values())
    return {"reads": reads, "writes": writes, "active": int(ops[1]) + int(ops[2])}
