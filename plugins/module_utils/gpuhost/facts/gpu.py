"""NVIDIA GPUs, their driver and the fabric manager, from nvidia-smi and files of the driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..host import Host
from . import gpu_bus, gpu_xml, processes

if TYPE_CHECKING:
    from .answer_types import GpuFacts, Smi

MODULE = "/proc/driver/nvidia/version"
LIMIT_S = 60.0  # eight GPUs without persistence mode take ten seconds and more


def read(host: Host, request: Mapping[str, Any]) -> GpuFacts:
    """The keys of `gpu_xml.parse`, on_bus, module, open_module, switches, fabric_manager, fabric_manager_runs."""
    unread: dict[str, str] = {}
    smi = _smi(host, unread)
    module, is_open = _module(host, unread)
    shown = host.exists("/proc/driver/nvidia-nvswitch") or host.exists(MODULE)
    running = processes.count(host, "nv-fabricmanager")
    if running is None:
        unread["fabric_manager_runs"] = processes.HIDDEN
    return {
        "driver": smi["driver"] if smi else None,
        "cuda": smi["cuda"] if smi else None,
        "attached": smi["attached"] if smi else None,
        "gpus": smi["gpus"] if smi else None,
        "module": module,
        "open_module": is_open,
        # The bus still shows a GPU that the driver has lost.
        "on_bus": gpu_bus.count(host, unread),
        "switches": len(host.listdir("/proc/driver/nvidia-nvswitch/devices")) if shown else None,
        "fabric_manager": _fabric_manager(host, unread),
        "fabric_manager_runs": None if running is None else running > 0,
        "unread": unread,
    }


def _smi(host: Host, unread: dict[str, str]) -> Smi | None:
    result = host.run("nvidia-smi", "-q", "-x", limit=LIMIT_S)
    try:
        smi = gpu_xml.parse(result.out)
    except ValueError as error:
        unread["gpus"] = unread["driver"] = result.last_line if not result.ok else str(error)
        return None
    unread.update(smi["unread"])
    return smi


def _module(host: Host, unread: dict[str, str]) -> tuple[str | None, bool | None]:
    """Version of the loaded kernel module, and whether it is the open one."""
    text = host.read_or_none(MODULE)
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text or "")
    version = match.group(1) if match else host.value("/sys/module/nvidia/version") or None
    if version is None:
        unread["module"] = "no NVIDIA driver is loaded" if text is None else f"{MODULE} names no version"
    return version, "Open Kernel Module" in text if text and match else None


def _fabric_manager(host: Host, unread: dict[str, str]) -> str | None:
    """Version of the fabric manager, which only machines with NVSwitches need."""
    result = host.run("nv-fabricmanager", "--version", limit=10)
    version = re.search(r"(\d+\.\d+(?:\.\d+)?)", result.out) if result.ok else None
    if version is None:
        unread["fabric_manager"] = result.last_line
    return version.group(1) if version else None
