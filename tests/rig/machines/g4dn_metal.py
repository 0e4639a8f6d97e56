"""An AWS g4dn.metal: two sockets of 24 cores whose ids have gaps, 8 T4, EFA, ENA, NVMe and SATA.

CPUs, NUMA nodes, distances and the devices of each node have the recorded layout (tests/unit/rig/test_machines.py).
Addresses, UUIDs, drivers, interrupts, idle states and frequency files are inferred.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from tests.rig.machines.model import ETHERNET, GPU, Cpu, Device, Frequency, Gpu, Idle, Machine

AMAZON, NVIDIA, INTEL = "0x1d0f", "0x10de", "0x8086"
SATA, NVME = "0x010600", "0x010800"
CORES, PACKAGES, THREADS = 24, 2, 2


def machine() -> Machine:
    return Machine(
        name="g4dn_metal",
        vendor="Amazon EC2",
        product="g4dn.metal",
        cpu_model="Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
        cpus=[
            Cpu(
                number=(thread * PACKAGES + package) * CORES + core,
                core=core + core // 4,
                package=package,
                node=package,
            )
            for thread in range(THREADS)
            for package in range(PACKAGES)
            for core in range(CORES)
        ],
        memory_kib={0: 197_600_000, 1: 198_100_000},
        distances={0: [10, 21], 1: [21, 10]},
        devices=list(_devices()),
        frequency=Frequency("intel_pstate", "powersave", ("performance", "powersave"), "intel_pstate/no_turbo"),
        energy_bias=6,
        idle_driver="intel_idle",
        idle=(Idle("POLL", 0), Idle("C1", 2), Idle("C1E", 10), Idle("C6", 133)),
        thp="[always] madvise never",
        disks=(),
    )


def _devices() -> Iterator[Device]:
    """In the order of their addresses."""
    yield Device("0000:00:11.0", SATA, INTEL, "0xa1d2", 0, "ahci", 1)
    yield Device("0000:00:17.0", SATA, INTEL, "0xa182", 0, "ahci", 1)
    yield from (_gpu(f"0000:{bus}:00.0", 0, minor) for minor, bus in enumerate(("1a", "1b", "3d", "3e")))
    yield Device("0000:89:00.0", NVME, AMAZON, "0x0061", 0, "nvme", 4, managed=True, block="nvme0n1")
    yield Device("0000:90:00.0", NVME, AMAZON, "0xcd00", 0, "nvme", 4, managed=True, block="nvme1n1")
    yield Device("0000:90:00.1", NVME, AMAZON, "0xcd00", 0, "nvme", 4, managed=True, block="nvme2n1")
    yield Device("0000:b0:00.0", ETHERNET, AMAZON, "0xefa0", 1, "efa", 8, rdma="rdmap176s0")
    yield Device("0000:b1:00.0", ETHERNET, AMAZON, "0xec20", 1, "ena", 8, net="eth0")
    yield from (_gpu(f"0000:{bus}:00.0", 1, minor) for minor, bus in enumerate(("d8", "d9", "eb", "ec"), 4))


def _gpu(address: str, node: int, minor: int) -> Device:
    gpu = Gpu("Tesla T4", f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'g4dn {address}')}", minor)
    return Device(address, GPU, NVIDIA, "0x1eb8", node, "nvidia", 1, gpu=gpu)
