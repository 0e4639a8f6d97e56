"""A two-socket server with two GPUs, not recorded but inferred: every kind of file and device the rig can serve."""

from __future__ import annotations

from tests.rig.machines.model import (
    ETHERNET,
    GPU,
    INFINIBAND,
    NVME,
    Device,
    Frequency,
    Gpu,
    Idle,
    Machine,
    Swap,
    two_threads_a_core,
)

NVIDIA, MELLANOX, INTEL, SAMSUNG = "0x10de", "0x15b3", "0x8086", "0x144d"
A100 = "NVIDIA A100-SXM4-80GB"

DEVICES = [
    Device("0000:04:00.0", ETHERNET, INTEL, "0x1563", -1, "ixgbe", 4, net="eno1"),
    Device(
        "0000:17:00.0",
        GPU,
        NVIDIA,
        "0x20b2",
        0,
        "nvidia",
        1,
        gpu=Gpu(A100, "GPU-3f1c0000-0000-4000-8000-000000000000", 0),
    ),
    Device("0000:18:00.0", INFINIBAND, MELLANOX, "0x101b", 0, "mlx5_core", 8, net="ib0", rdma="mlx5_0"),
    Device("0000:5e:00.0", NVME, SAMSUNG, "0xa80a", 0, "nvme", 4, managed=True, block="nvme0n1"),
    Device(
        "0000:b1:00.0",
        GPU,
        NVIDIA,
        "0x20b2",
        1,
        "nvidia",
        1,
        gpu=Gpu(A100, "GPU-9b7e0000-0000-4000-8000-000000000001", 1),
    ),
    Device("0000:b2:00.0", INFINIBAND, MELLANOX, "0x101b", 1, "mlx5_core", 8, net="ib1", rdma="mlx5_1"),
]


def machine() -> Machine:
    return Machine(
        name="generic",
        vendor="Dell Inc.",
        product="PowerEdge XE8545",
        cpu_model="Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
        cpus=two_threads_a_core(cores=32, nodes=2),
        memory_kib={0: 263_000_000, 1: 264_000_000},
        distances={0: [10, 21], 1: [21, 10]},
        devices=DEVICES,
        frequency=Frequency(
            "intel_pstate", "powersave", ("performance", "powersave"), "intel_pstate/no_turbo", "balance_performance"
        ),
        energy_bias=6,
        idle_driver="intel_idle",
        idle=(Idle("POLL", 0), Idle("C1", 1), Idle("C1E", 4), Idle("C6", 170)),
        swaps=(Swap("/dev/sda3", 8_388_604),),
    )
