"""Checks for a hang of NCCL: pods, GPUs, adapters and settings, then which ranks wait for which."""

from __future__ import annotations

from gpuctl.cluster.doctor.hang import fabric, gpu, job, limits, log_patterns, pods, reachability, settings
from gpuctl.cluster.doctor.model import Check, Trouble

RANKS = ("ranks", "waits", "gpu use", "NCCL log")
HANG = Trouble(
    "hang",
    (
        Check("pods", pods.ready, explains=("names", "ssh", "master", *RANKS)),
        Check("probe", pods.probed),
        Check("restarted", pods.restarted, explains=RANKS),
        Check("folders", limits.folders, explains=("stopped", *RANKS)),
        Check("stopped", job.stopped, explains=("waits", "gpu use", "NCCL log")),
        Check("gpus", gpu.gpus, explains=RANKS),
        Check("same", pods.same, explains=("settings", *RANKS)),
        Check("hostfile", reachability.hostfile, explains=("ranks",)),
        Check("names", reachability.names, explains=("ssh", "master", *RANKS)),
        Check("ssh", reachability.ssh, explains=("master", *RANKS)),
        Check("master", reachability.master, explains=RANKS, optional=True),
        Check("settings", settings.settings, explains=RANKS),
        Check("interfaces", settings.interfaces, explains=RANKS),
        Check("mtu", settings.mtu),
        Check("adapters", fabric.adapters, explains=("addresses", *RANKS)),
        Check("addresses", fabric.addresses, explains=RANKS),
        Check("memlock", limits.memlocked, explains=RANKS),
        Check("shared memory", limits.shm, explains=RANKS),
        Check("gpu memory", gpu.memory),
        Check("NCCL log", log_patterns.messages, explains=("ranks", "waits", "gpu use")),
        Check("ranks", job.ranks, explains=("waits", "gpu use")),
        Check("waits", job.waits, explains=("gpu use",)),
        Check("gpu use", gpu.use),
        Check("kernel log", gpu.kernel_log, optional=True),
    ),
)
