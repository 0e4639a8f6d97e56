"""Processors, NUMA nodes, GPUs, NICs and their IRQs, read from the host's files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .host import Host

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
AMAZON = "0x1d0f"


class Device(NamedTuple):
    """A GPU or NIC on the PCI bus. `node` is None if unknown (numa_node is -1 or unreadable)."""

    address: str
    kind: str  # "gpu" or "nic"
    vendor: str
    device: str
    node: int | None


def cpus_of(text: str) -> list[int]:
    """Parse a kernel list: "0-3,8" -> [0, 1, 2, 3, 8]; ValueError if it is not one."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def as_list(numbers: Iterable[int]) -> str:
    """Format a kernel list: [0, 1, 2, 3, 8] -> "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _list_in(host: Host, path: str) -> list[int] | None:
    """The list in a kernel file; None if it is missing. Some kernels write an empty list as "(null)"."""
    text = host.value(path)
    return None if text is None else cpus_of(text) if text[:1].isdigit() else []


def online(host: Host) -> list[int]:
    """Online processors."""
    listed = _list_in(host, f"{CPU}/online")
    if listed is None:
        return sorted(int(n[3:]) for n in host.listdir(CPU) if re.fullmatch(r"cpu\d+", n))
    return listed


def offline(host: Host) -> list[int]:
    """Processors that are present but offline."""
    return sorted({*(_list_in(host, f"{CPU}/present") or [])} - {*online(host)})


def isolated(host: Host) -> set[int]:
    """Processors that isolcpus= and nohz_full= exclude from scheduling."""
    return {cpu for name in ("isolated", "nohz_full") for cpu in _list_in(host, f"{CPU}/{name}") or []}


def nodes(host: Host) -> dict[int, list[int]]:
    """NUMA node -> its processors; numbers may have gaps, and a memory-only node has no processors.

    A kernel without NUMA support has one node with all processors.
    """
    numbers = sorted(int(name[4:]) for name in host.listdir(NODE) if re.fullmatch(r"node\d+", name))
    return {n: _list_in(host, f"{NODE}/node{n}/cpulist") or [] for n in numbers} or {0: online(host)}


def home(node: int | None, on: Mapping[int, Sequence[int]]) -> int | None:
    """The node with the processors nearest to a device on `node`; None if unknown.

    If only one node has processors, every device belongs to it, whatever the firmware says.
    """
    candidates = [number for number, cpus in on.items() if cpus]
    if len(candidates) == 1:
        return candidates[0]
    return node if node in candidates else None


def devices(host: Host) -> list[Device]:
    """All NVIDIA GPUs and NICs, in bus order."""
    return [device for address in host.listdir(PCI) for device in _device(host, address)]


def _device(host: Host, address: str) -> list[Device]:
    # Class 02: network (Ethernet, InfiniBand); class 03: display, where 0300 may be a server's own small VGA chip.
    base = f"{PCI}/{address}"
    kind = {"0x02": "nic", "0x03": "gpu"}.get((host.value(f"{base}/class") or "")[:4])
    vendor = host.value(f"{base}/vendor") or "" if kind else ""
    if kind is None or (kind == "gpu" and vendor != NVIDIA):
        return []
    return [Device(address, kind, vendor, host.value(f"{base}/device") or "", node_of(host, address))]


def node_of(host: Host, address: str) -> int | None:
    """The NUMA node of a PCI device; None if the firmware names none."""
    text = host.value(f"{PCI}/{address}/numa_node")
    return int(text) if text is not None and text.isdigit() else None


def irqs(host: Host, address: str) -> tuple[int, ...]:
    """IRQ numbers of a PCI device, in the order of its vectors."""
    base = f"{PCI}/{address}"
    vectors = sorted(int(name) for name in host.listdir(f"{base}/msi_irqs"))
    if vectors:
        return tuple(vectors)
    legacy = host.value(f"{base}/irq")
    return (int(legacy),) if legacy and legacy.isdigit() and legacy != "0" else ()
