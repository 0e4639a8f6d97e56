"""Judge GPUDirect Storage by gdscheck and by the I/O that nvidia-fs has counted; a loaded module proves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail, ok, unknown
from gpuctl.domain.node_facts import get, why
from gpuctl.gpu_node.dkms_modules import GDS
from gpuctl.gpu_node.model import Component

SUBJECT = "gds"  # of facts/gather.py
# Only I/O of a job proves it: on a drained host it is unknown.
PATH = "gds path"
TOOLS = "install gds-tools of the host's CUDA, which have gdscheck"
IDLE = "verify again when no jobs run: gdscheck starts CUDA on every GPU"
WITHOUT_NVIDIA_FS = ("NVMe P2PDMA", "Userspace RDMA")  # rows of gdscheck that are no storage driver of nvidia-fs
REPORT = "run gdscheck -p on the host, and read its report and /etc/cufile.json"
IO = "read or write a file with gdsio, or by a job that uses cuFile, then verify again"
COUNT = "echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled"
Readings = Mapping[str, Any]


def judge(host: str, part: Component, readings: Readings, gpus: int | None) -> list[Finding]:
    """The platform by gdscheck, whose success also covers I/O that falls back; and the path by counted I/O.

    `gpus`: number of GPUs on the PCI bus, None if it is not known.
    """
    return [_platform(host, part, readings, gpus), _path(host, readings)]


def _platform(host: str, part: Component, readings: Readings, gpus: int | None) -> Finding:
    report = get(readings, SUBJECT, "check")
    if report is None:
        reason = why(readings, SUBJECT, "check")
        hint = IDLE if reason.startswith("jobs run") else TOOLS
        return unknown(GDS, host, f"nvidia-fs is loaded, gdscheck not read: {reason}", hint)
    drivers = [name for name in report["supported"] if name not in WITHOUT_NVIDIA_FS]
    others = f" (only {named(report['supported'])}, without nvidia-fs)" if report["supported"] else ""
    failures = {
        "gdscheck does not verify the platform": not report["is_verified"],
        f"GPUs without support: {named(report['gpus_without'])}": bool(report["gpus_without"]),
        "its configuration sends all I/O through host memory (force_compat_mode)": report["is_compat_forced"],
        f"gdscheck supports no storage of the host by nvidia-fs: all its I/O falls back{others}": not drivers,
        f"gdscheck lists {report['gpus']} of {gpus} GPUs": gpus is not None and report["gpus"] < gpus,
    }
    failed = next((message for message, is_failed in failures.items() if is_failed), None)
    if failed is not None:
        return fail(GDS, host, failed, REPORT)
    if report["is_compat_forced"] is None:
        return unknown(GDS, host, "gdscheck does not say whether force_compat_mode is set", REPORT)
    if gpus is None or report["gpus"] != gpus:
        shown = "an unknown number" if gpus is None else str(gpus)
        return unknown(GDS, host, f"gdscheck lists {plural(report['gpus'], 'GPU')}, the host has {shown}", REPORT)
    return ok(GDS, host, f"{part.desired}, verified by gdscheck for {named(drivers)}")


def _path(host: str, readings: Readings) -> Finding:
    """Direct I/O: operations that have gone through nvidia-fs."""
    counted = get(readings, SUBJECT, "counters")
    if counted is None:
        message = f"direct I/O is not proved: {why(readings, SUBJECT, 'counters')}"
        return unknown(PATH, host, message, "cat /proc/driver/nvidia-fs/stats")
    if (counted["reads"] or 0) + (counted["writes"] or 0):
        message = f"nvidia-fs has completed {plural(counted['reads'] or 0, 'read')}"
        return ok(PATH, host, f"{message} and {plural(counted['writes'] or 0, 'write')}")
    if counted["active"]:
        return ok(PATH, host, f"nvidia-fs carries {plural(counted['active'], 'operation')} now")
    if None in (counted["reads"], counted["writes"]):
        return unknown(PATH, host, "direct I/O is not proved: nvidia-fs does not count operations", f"{COUNT}; {IO}")
    return unknown(PATH, host, "direct I/O is not proved: nvidia-fs has counted none since it was loaded", IO)
