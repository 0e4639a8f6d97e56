"""An AWS p5.48xlarge: eight PCI bridges, each with an H100 and the four EFA devices nearest to it.

The devices behind each bridge have the recorded layout (tests/unit/rig/test_machines.py). All else is inferred: half of
the bridges on each of two NUMA nodes, 192 CPUs, addresses, device ids, drivers, interrupts, idle states, the NVMe disk,
UUIDs; a guest has no cpufreq.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from tests.rig.machines.model import BRIDGE, ETHERNET, GPU, NVME, Device, Gpu, Idle, Machine, two_threads_a_core

AMAZON, NVIDIA = "0x1d0f", "0x10de"
BRIDGES, EFA_A_BRIDGE, NODES = 8, 4, 2


def machine() -> Machine:
    return Machine(
        name="p5",
        vendor="Amazon EC2",
        product="p5.48xlarge",
        cpu_model="AMD EPYC 7R13 Processor",
        cpus=two_threads_a_core(cores=96, nodes=NODES),
        memory_kib={0: 1_073_000_000, 1: 1_073_000_000},
        distances={0: [10, 32], 1: [32, 10]},
        devices=list(_devices()),
        virtual=True,
        idle_driver="acpi_idle",
        idle=(Idle("POLL", 0), Idle("C1", 1), Idle("C2", 800)),
        disks=(),
        cmdline="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1018-aws root=PARTUUID=0b5c ro console=tty1 console=ttyS0",
    )


def _devices() -> Iterator[Device]:
    """In the order of their addresses: bridge n has bus 0x20 + 16n, its GPU the next bus, then its EFA devices."""
    for number in range(BRIDGES):
        node, bus = number * NODES // BRIDGES, 0x20 + 0x10 * number
        yield Device(_address(bus), BRIDGE, AMAZON, "0x0200", node, "pcieport")
        yield _gpu(bus + 1, node, number)
        for efa_bus in range(bus + 2, bus + 2 + EFA_A_BRIDGE):
            yield Device(_address(efa_bus), ETHERNET, AMAZON, "0xefa2", node, "efa", 3, rdma=f"rdmap{efa_bus}s0")
    yield Device(_address(0xCB), NVME, AMAZON, "0xcd01", 1, "nvme", 4, managed=True, block="nvme0n1")


def _address(bus: int) -> str:
    return f"0000:{bus:02x}:00.0"


def _gpu(bus: int, node: int, minor: int) -> Device:
    gpu = Gpu("NVIDIA H100 80GB HBM3", f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, _address(bus))}", minor)
    return Device(_address(bus), GPU, NVIDIA, "0x2330", node, "nvidia", 1, gpu=gpu)
