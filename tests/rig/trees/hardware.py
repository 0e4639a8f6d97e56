"""Processors, NUMA nodes, PCI devices and interrupts for host trees, and hosts whose files behave like drivers."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.topology import as_list

from tests.rig.trees.host import TreeHost, put, small_server

CPU, NODE, PCI = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/bus/pci/devices"
IDLE = (("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133))
GPU, NIC = ("0x030200", "0x10de", "0x2330"), ("0x020700", "0x15b3", "0x1021")


def metal(root: Path, governors: Sequence[str] = ("schedutil",) * 4, nodes: int = 2, **frequency: str) -> Path:
    """A bare-metal machine with one processor per governor, spread evenly over the NUMA nodes."""
    small_server(root)
    put(root, "/proc/cpuinfo", "flags : fpu\n")
    cpus = range(len(governors))
    for name in ("online", "present"):
        put(root, f"{CPU}/{name}", f"{as_list(cpus)}\n")
    count = len(governors) // nodes
    for node in range(nodes):
        put(root, f"{NODE}/node{node}/cpulist", f"{as_list(range(node * count, (node + 1) * count))}\n")
    offered = frequency.get("offered", "conservative ondemand powersave performance schedutil")
    for cpu, governor in enumerate(governors):
        base = f"{CPU}/cpu{cpu}/cpufreq"
        put(root, f"{base}/scaling_governor", f"{governor}\n")
        put(root, f"{base}/scaling_available_governors", f"{offered}\n")
        put(root, f"{base}/scaling_driver", f"{frequency.get('driver', 'acpi-cpufreq')}\n")
        for number, (name, latency) in enumerate(IDLE):
            state = f"{CPU}/cpu{cpu}/cpuidle/state{number}"
            put(root, f"{state}/name", f"{name}\n")
            put(root, f"{state}/latency", f"{latency}\n")
            put(root, f"{state}/disable", "0\n")
    return root


@dataclass(frozen=True)
class Card:
    """A PCI device with its interrupts; `node` is -1 if the firmware names none."""

    address: str
    ids: tuple[str, str, str]
    node: int
    irqs: tuple[int, ...]


def cards(root: Path, *rows: Card, everywhere: str = "0-3") -> Path:
    """Put devices on the bus; their interrupts may go anywhere."""
    for card in rows:
        base = f"{PCI}/{card.address}"
        for name, text in zip(("class", "vendor", "device"), card.ids, strict=True):
            put(root, f"{base}/{name}", f"{text}\n")
        put(root, f"{base}/numa_node", f"{card.node}\n")
        for irq in card.irqs:
            put(root, f"{base}/msi_irqs/{irq}", "msix\n")
            put(root, f"/proc/irq/{irq}/smp_affinity_list", f"{everywhere}\n")
    return root


def irq(root: Path, number: int) -> str:
    """Affinity of an interrupt."""
    return (root / f"proc/irq/{number}/smp_affinity_list").read_text().strip()


def of_cpus(root: Path, file: str) -> list[str]:
    """Content of a file of each processor, in their order."""
    folders = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*"), key=lambda folder: int(folder.name[3:]))
    return [(folder / file).read_text().strip() for folder in folders]


class Pstate(TreeHost):
    """intel_pstate in active mode: the governor "performance" fixes the energy preference; leaving it restores one."""

    def preferences(self, *each: str) -> Pstate:
        """Set the preference that each processor has under another governor."""
        root = Path(self.root)
        for cpu, preference in enumerate(each):
            base = f"{CPU}/cpu{cpu}/cpufreq"
            put(root, f"{base}/energy_performance_available_preferences", "default performance balance_power power\n")
            put(root, f"{base}/energy_performance_preference", f"{preference}\n")
            put(root, f"{base}/.kept", preference)
            if self.value(f"{base}/scaling_governor") == "performance":
                super().write(f"{base}/energy_performance_preference", "performance")
        return self

    def write(self, path: str, text: str) -> None:
        folder, _, name = path.rpartition("/")
        preference = f"{folder}/energy_performance_preference"
        governor = name.startswith(("scaling", "energy_performance")) and self.value(f"{folder}/scaling_governor")
        if name == "energy_performance_preference":
            if governor == "performance" and text != "performance":
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
            if governor != "performance":
                put(Path(self.root), f"{folder}/.kept", text)
        super().write(path, text)
        if name == "scaling_governor" and self.exists(preference):
            super().write(preference, "performance" if text == "performance" else self.read(f"{folder}/.kept"))


class Refusing(TreeHost):
    """A host on which writes or reads of some files fail."""

    def __init__(self, root: Path, writes: dict[str, int] | None = None, reads: dict[str, int] | None = None) -> None:
        super().__init__(root)
        self.writes, self.reads = writes or {}, reads or {}
        self.asked: list[str] = []

    def write(self, path: str, text: str) -> None:
        self.asked.append(path)
        self._refuse(self.writes, path)
        super().write(path, text)

    def read(self, path: str) -> str:
        self._refuse(self.reads, path)
        return super().read(path)

    @staticmethod
    def _refuse(rules: dict[str, int], path: str) -> None:
        code = next((code for part, code in rules.items() if part in path), None)
        if code is not None:
            raise OSError(code, os.strerror(code), path)
