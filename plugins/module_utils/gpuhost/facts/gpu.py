"""NVIDIA GPUs, their driver and the fabric manager, from nvidia-smi and files of the driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..host import Host
from . import gpu_bus, gpu_xml, processes

MODULE = "/proc/driver/nvidia/version"
LIMIT_S = 60.0  # eight GPUs without persistence mode take ten seconds and more


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `gpu_xml.parse`, on_bus, module, open_module, switches, fabric_manager, fabric_manager_runs."""
    facts: dict[str, Any] = dict.fromkeys(gpu_xml.FIELDS)
    unread: dict[str, str] = {}
    result = host.run("nvidia-smi", "-q", "-x", limit=LIMIT_S)
    try:
        facts.update(gpu_xml.parse(result.out))
    except ValueError as error:
        unread["gpus"] = result.last_line if not result.ok else str(error)
    if facts["driver"] is None:
        unread.setdefault("driver", unread.get("gpus", "nvidia-smi names no driver version"))
    facts.update(_module(host, unread), **_fabric_manager(host, unread))
    facts["on_bus"] = gpu_bus.count(host, unread)
    return {**facts, "unread": unread}


def _module(host: Host, unread: dict[str, str]) -> dict[str, Any]:
    """Version of the loaded kernel module, and whether it is the open one."""
    text = host.read_or_none(MODULE)
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text or "")
    version = match.group(1) if match else host.value("/sys/module/nvidia/version")
    if version is None:
        unread["module"] = "no NVIDIA driver is loaded" if text is None else f"{MODULE} names no version"
    return {
        "module": version,
        "open_module": "Open Kernel Module" in text if text and match else None,
    }


def _fabric_manager(host: Host, unread: dict[str, str]) -> dict[str, Any]:
    """Fabric manager, which only machines with NVSwitches need, and the number of those switches."""
    shown = host.exists("/proc/driver/nvidia-nvswitch") or host.exists(MODULE)
    switches = len(host.listdir("/proc/driver/nvidia-nvswitch/devices")) if shown else None
    result = host.run("nv-fabricmanager", "--version", limit=10)
    version = re.search(r"(\d+\.\d+(?:\.\d+)?)", result.out) if result.ok else None
    if version is None:
        unread["fabric_manager"] = result.last_line
    running = processes.count(host, "nv-fabricmanager")
    if running is None:
        unread["fabric_manager_runs"] = processes.HIDDEN
    return {
        "switches": switches,
        "fabric_manager": version.group(1) if version else None,
        "fabric_manager_runs": None if running is None else running > 0,
    }
