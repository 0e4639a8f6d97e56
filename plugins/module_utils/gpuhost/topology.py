"""Which processors, NUMA nodes, GPUs and NICs a host has, and which IRQs belong to which: read from its own files."""

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
    """A GPU or NIC on the PCI bus. `node` is None where the host does not know (numa_node -1 or unreadable)."""

    address: str
    kind: str  # "gpu" or "nic"
    vendor: str
    device: str
    node: int | None


def cpus_of(text: str) -> list[int]:
    """The numbers of a kernel list: "0-3,8" -> [0, 1, 2, 3, 8]; ValueError where it is none."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def as_list(numbers: Iterable[int]) -> str:
    """The kernel's way to write numbers: [0, 1, 2, 3, 8] -> "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _list_in(host: Host, path: str) -> list[int] | None:
    """The numbers a kernel file lists; None where it is missing. Some kernels write an empty list as "(null)"."""
    text = host.value(path)
    return None if text is None else cpus_of(text) if text[:1].isdigit() else []


def online(host: Host) -> list[int]:
    """The processors at work."""
    found = _list_in(host, f"{CPU}/online")
    if found is None:
        return sorted(int(n[3:]) for n in host.listdir(CPU) if re.fullmatch(r"cpu\d+", n))
    return found


def offline(host: Host) -> list[int]:
    """Processors that are there and switched off."""
    return sorted({*(_list_in(host, f"{CPU}/present") or [])} - {*online(host)})


def isolated(host: Host) -> set[int]:
    """Processors that the kernel keeps free of ordinary work, as it was told by isolcpus= and nohz_full=."""
    return {cpu for name in ("isolated", "nohz_full") for cpu in _list_in(host, f"{CPU}/{name}") or []}


def nodes(host: Host) -> dict[int, list[int]]:
    """NUMA node -> its processors; numbers may have gaps, a node of memory alone has none.

    A kernel that knows no nodes has one, which holds everything.
    """
    numbers = sorted(int(name[4:]) for name in host.listdir(NODE) if re.fullmatch(r"node\d+", name))
    return {n: _list_in(host, f"{NODE}/node{n}/cpulist") or [] for n in numbers} or {0: online(host)}


def home(node: int | None, on: Mapping[int, Sequence[int]]) -> int | None:
    """The node whose processors are nearest to a device that names `node`; None where that cannot be known.

    Where only one node has processors, every device belongs to it, whatever its firmware says.
    """
    candidates = [number for number, cpus in on.items() if cpus]
    if len(candidates) == 1:
        return candidates[0]
    return node if node in candidates else None


def devices(host: Host) -> list[Device]:
    """Every NVIDIA GPU and every NIC, in the order of the bus."""
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
    """The NUMA node that a PCI device names; None where it names none."""
    text = host.value(f"{PCI}/{address}/numa_node")
    return int(text) if text is not None and text.isdigit() else None


def irqs(host: Host, address: str) -> tuple[int, ...]:
    """The interrupt numbers of a PCI device, in the order of its vectors."""
    base = f"{PCI}/{address}"
    vectors = sorted(int(name) for name in host.listdir(f"{base}/msi_irqs"))
    if vectors:
        return tuple(vectors)
    legacy = host.value(f"{base}/irq")
    return (int(legacy),) if legacy and legacy.isdigit() and legacy != "0" else ()
