"""Checks for slow training: throttled GPUs, then the transport between them, then CPU, memory and storage."""

from __future__ import annotations

from gpuctl.cluster.doctor.hang import gpu as lost
from gpuctl.cluster.doctor.hang import limits, pods
from gpuctl.cluster.doctor.model import Check, Trouble
from gpuctl.cluster.doctor.slow import gpu, neighbours, processors, storage, transport

SLOW = Trouble(
    "slow",
    (
        Check("pods", pods.ready, explains=("stragglers",)),
        Check("probe", pods.probed),
        Check("gpus", lost.gpus, explains=("stragglers",)),
        Check("clocks", gpu.clocks, explains=("pace", "stragglers")),
        Check("pcie", gpu.pcie, explains=("stragglers",)),
        Check("gpu memory", gpu.memory),
        Check("transport", transport.transport, explains=("gpudirect",)),
        Check("gpudirect", transport.gpudirect),
        Check("processors", processors.throttled, explains=("loaders", "stragglers")),
        Check("memory", processors.memory, explains=("loaders", "stragglers", "storage")),
        Check("neighbours", neighbours.neighbours, explains=("loaders", "stragglers")),
        Check("shared memory", limits.shm, explains=("loaders",)),
        Check("folders", limits.folders, explains=("loaders", "stragglers", "storage")),
        Check("storage load", storage.load, explains=("storage", "loaders", "stragglers")),
        Check("storage", storage.storage, explains=("loaders", "stragglers")),
        Check("pace", gpu.pace, explains=("stragglers",)),
        Check("stragglers", gpu.stragglers),
        Check("loaders", processors.loaders),
        Check("guaranteed", processors.guaranteed),
        Check("numa", processors.numa),
        Check("shares", storage.shares),
        Check("kernel log", lost.kernel_log, optional=True),
    ),
)
