"""CPU and memory: the pod's limits, and the load of its node; counters are sampled twice."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import topology
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import jobs

TOP = "/sys/fs/cgroup"
# File of cgroup version 2, then of version 1.
STAT, USAGE = ("cpu.stat", "cpu/cpu.stat"), ("cpu.stat", "cpuacct/cpuacct.usage")
FILES = {
    "memory_limit": ("memory.max", "memory/memory.limit_in_bytes"),
    "memory_used": ("memory.current", "memory/memory.usage_in_bytes"),
    "memory_stat": ("memory.stat", "memory/memory.stat"),
    "memory_events": ("memory.events", "memory/memory.oom_control"),
}
PRESSURES = ("memory", "io")


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {files, cpu_used, throttled, node_busy, cpus, swapped, pressure, pod_pressure, allowed, nodes, gpu_nodes,
    memlock, capabilities}.

    Files are the kernel's text; counters are the change during the sample. `cpu_used` and `node_busy` are numbers of
    CPUs. `memlock`: limit of a program started in the pod.
    """
    before, began = _counters(host), time.monotonic()
    time.sleep(float(request["sample_s"]))
    after, passed = _counters(host), time.monotonic() - began
    changed = {name: _change(before[name], value) for name, value in after.items()}
    return {
        "files": {name: _first(host, places) for name, places in FILES.items()},
        "cpu_used": _rate(changed["used_ns"], passed * 1e9),
        "throttled": _rate(changed["throttled_ns"], passed * 1e9),
        "node_busy": _rate(changed["busy"], passed * jobs.TICKS),
        "swapped": changed["swapped"],
        "cpus": len(topology.online(host)) or None,
        "pressure": {name: host.read_or_none(f"/proc/pressure/{name}") for name in PRESSURES},
        "pod_pressure": {name: host.read_or_none(f"{TOP}/{name}.pressure") for name in PRESSURES},
        "allowed": topology.as_list(os.sched_getaffinity(0)),
        "nodes": {str(node): topology.as_list(cpus) for node, cpus in topology.nodes(host).items()},
        "gpu_nodes": sorted(
            {device.node for device in topology.devices(host) if device.kind == "gpu" and device.node is not None}
        ),
        "memlock": jobs.memlock(host, "self"),
        "capabilities": _status(host, "CapEff"),
    }


def _change(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _rate(change: int | None, of: float) -> float | None:
    return None if change is None else round(change / of, 3)


def _first(host: Host, places: tuple[str, str]) -> str | None:
    for name in places:
        try:
            text = host.read_or_none(f"{TOP}/{name}")
        except OSError:
            continue
        if text is not None:
            return text
    return None


def _counters(host: Host) -> dict[str, int | None]:
    stat = _pairs(_first(host, STAT))
    used = _first(host, USAGE)
    usec = _pairs(used).get("usage_usec")
    plain = int(used) if used and used.strip().isdigit() else None
    throttled = stat.get("throttled_usec")
    cpu = [int(word) for word in (host.read_or_none("/proc/stat") or "").partition("\n")[0].split()[1:]]
    pages = _pairs(host.read_or_none("/proc/vmstat"))
    return {
        "used_ns": usec * 1000 if usec is not None else plain,
        "throttled_ns": throttled * 1000 if throttled is not None else stat.get("throttled_time"),
        # user, nice, system, irq, softirq, steal; neither idle nor iowait (proc_stat(5))
        "busy": sum(cpu[:3]) + sum(cpu[5:8]) if len(cpu) > 7 else None,
        "swapped": pages["pswpin"] + pages["pswpout"] if {"pswpin", "pswpout"} <= pages.keys() else None,
    }


def _pairs(text: str | None) -> dict[str, int]:
    rows = (line.split() for line in (text or "").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _status(host: Host, name: str) -> str | None:
    rows = (line.partition(":") for line in (host.read_or_none("/proc/self/status") or "").splitlines())
    return next((value.strip() for key, _, value in rows if key == name), None)
