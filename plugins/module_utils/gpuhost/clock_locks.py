"""Marks of locked clocks: no driver shows the clocks that are locked, so gpuctl notes what it has locked.

A mark is lost with the boot, like the lock, and does not count once the driver was loaded again.
"""

from __future__ import annotations

import os

from . import smi
from .host import Host

FOLDER = "/run/gpuctl/clocks"
OPTIONS = {"graphics_clock": ("-lgc", "-rgc"), "memory_clock": ("-lmc", "-rmc")}
CURRENT = {"graphics_clock": "clocks.current.graphics", "memory_clock": "clocks.current.memory"}
MAXIMUM = {"graphics_clock": "clocks.max.graphics", "memory_clock": "clocks.max.memory"}


def read(host: Host, gpu: smi.GpuState, clock: str) -> str | None:
    """The range that is locked, "MIN,MAX" in MHz; None if none is, as far as gpuctl knows."""
    text, _, loaded = (host.read_or_none(_path(gpu.uuid, clock)) or "").strip().partition(" ")
    if not text or loaded != _driver_load(host):
        return None
    # A clock above the range is proof that somebody has reset the lock.
    above = gpu.has(CURRENT[clock]) and gpu.number(CURRENT[clock]) > int(text.partition(",")[2])
    return None if above else text


def write(host: Host, gpu: smi.GpuState, clock: str, text: str | None) -> None:
    """Lock the clock to a range, or reset it with None."""
    lock, reset = OPTIONS[clock]
    if text is None:
        smi.change(host, "-i", gpu.uuid, reset)
        host.remove(_path(gpu.uuid, clock))
        return
    smi.change(host, "-i", gpu.uuid, lock, text)
    host.replace(_path(gpu.uuid, clock), f"{text} {_driver_load(host)}\n")


def forget(host: Host, uuid: str) -> None:
    """Remove the marks of a GPU that was reset."""
    for clock in OPTIONS:
        host.remove(_path(uuid, clock))


def _path(uuid: str, clock: str) -> str:
    return f"{FOLDER}/{uuid}.{clock}"


def _driver_load(host: Host) -> str:
    """Identity of the driver's load: the kernel gives a module's folder another number each time."""
    try:
        return str(os.stat(host.real("/sys/module/nvidia")).st_ino)
    except OSError:
        return "unknown"
