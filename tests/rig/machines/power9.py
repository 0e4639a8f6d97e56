"""An IBM 8335-GTW: POWER9 with six V100, each GPU's memory a NUMA node without CPUs.

NUMA nodes 0, 8 and 250 to 255 with their CPUs, distances and memory, and the GPUs of each socket have the recorded
layout (tests/unit/rig/test_machines.py). Addresses, PCI ids, drivers, interrupts, the network card, UUIDs, idle states
and frequency files are inferred.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from tests.rig.machines.model import ETHERNET, GPU, Cpu, Device, Frequency, Gpu, Idle, Machine

THREADS_A_CORE, CPUS_A_SOCKET = 4, 88
SOCKETS, GPU_MEMORIES = (0, 8), range(250, 256)
NODES = (*SOCKETS, *GPU_MEMORIES)
GPUS = {
    "0004:01:00.0": 0,
    "0004:02:00.0": 0,
    "0005:01:00.0": 0,
    "0034:01:00.0": 8,
    "0034:02:00.0": 8,
    "0035:01:00.0": 8,
}


def machine() -> Machine:
    return Machine(
        name="power9",
        vendor="IBM",
        product="8335-GTW",
        cpu_model="POWER9, altivec supported",
        cpus=[
            Cpu(number, number // THREADS_A_CORE * THREADS_A_CORE, package=node, node=node)
            for socket, node in enumerate(SOCKETS)
            for number in range(socket * CPUS_A_SOCKET, (socket + 1) * CPUS_A_SOCKET)
        ],
        memory_kib={0: 129_800_000, 8: 133_900_000, **dict.fromkeys(GPU_MEMORIES, 15 << 20)},
        distances={node: [_distance(node, other) for other in NODES] for node in NODES},
        devices=list(_devices()),
        frequency=Frequency("powernv-cpufreq", "ondemand", ("ondemand", "performance", "powersave"), "cpufreq/boost"),
        idle_driver="powernv_idle",
        idle=(Idle("snooze", 0), Idle("stop0_lite", 1), Idle("stop2", 10), Idle("stop5", 200)),
        thp="[always] madvise never",
    )


def _distance(node: int, other: int) -> int:
    if node == other:
        return 10
    return 40 if {node, other} == set(SOCKETS) else 80


def _devices() -> Iterator[Device]:
    for minor, (address, node) in enumerate(GPUS.items()):
        gpu = Gpu("Tesla V100-SXM2-16GB", f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, address)}", minor)
        yield Device(address, GPU, "0x10de", "0x1db1", node, "nvidia", 1, gpu=gpu)
    yield Device("0033:01:00.0", ETHERNET, "0x15b3", "0x1019", 8, "mlx5_core", 8, net="ens1", rdma="mlx5_0")
