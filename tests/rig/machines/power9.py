"""An IBM 8335-GTW (POWER9, 6 V100 whose memory is NUMA nodes of its own) after the sysfs_power9_v100_gpunuma folder.

Recorded: NUMA nodes 0, 8 and 250 to 255 with their CPUs, memory and distances; PCI addresses of the GPUs
(lstopo_power9_nvgpunumanodes.console.txt). Inferred: PCI ids (the recording has zeros), drivers, interrupts, the
network card, GPU UUIDs, idle states, frequency files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tests.rig.machines.model import ETHERNET, GPU, Cpu, Device, Frequency, Gpu, Idle, Machine
from tests.rig.machines.recorded import recording
from tests.rig.numbers import from_list

THREADS_A_CORE = 4


def machine() -> Machine:
    folder = recording("sysfs_power9_v100_gpunuma") / "sys/devices/system/node"
    nodes = sorted(from_list((folder / "online").read_text().strip()))
    return Machine(
        name="power9",
        vendor="IBM",
        product="8335-GTW",
        cpu_model="POWER9, altivec supported",
        cpus=[cpu for node in nodes for cpu in _cpus(folder / f"node{node}", node)],
        memory_kib={node: _memory(folder / f"node{node}") for node in nodes},
        distances={node: [int(n) for n in (folder / f"node{node}/distance").read_text().split()] for node in nodes},
        devices=list(_devices()),
        frequency=Frequency("powernv-cpufreq", "ondemand", ("ondemand", "performance", "powersave"), "cpufreq/boost"),
        idle_driver="powernv_idle",
        idle=(Idle("snooze", 0), Idle("stop0_lite", 1), Idle("stop2", 10), Idle("stop5", 200)),
        thp="[always] madvise never",
    )


def _cpus(folder: Path, node: int) -> Iterator[Cpu]:
    for number in from_list((folder / "cpulist").read_text().strip()):
        yield Cpu(number, number // THREADS_A_CORE * THREADS_A_CORE, node, node)


def _memory(folder: Path) -> int:
    found = re.search(r"MemTotal:\s+(\d+) kB", (folder / "meminfo").read_text())
    assert found, f"no MemTotal in {folder}/meminfo"
    return int(found[1])


def _devices() -> Iterator[Device]:
    minors = count()
    package = 0
    for line in recording("lstopo_power9_nvgpunumanodes.console.txt").read_text().splitlines():
        if found := re.search(r"Package L#\d+ \(P#(\d+)", line):
            package = int(found[1])
        if found := re.search(r"PCI L#\d+ \(busid=(\S+)", line):
            gpu = Gpu("Tesla V100-SXM2-16GB", f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, found[1])}", next(minors))
            yield Device(found[1], GPU, "0x10de", "0x1db1", package, "nvidia", 1, gpu=gpu)
    yield Device("0033:01:00.0", ETHERNET, "0x15b3", "0x1019", 8, "mlx5_core", 8, net="ens1", rdma="mlx5_0")
