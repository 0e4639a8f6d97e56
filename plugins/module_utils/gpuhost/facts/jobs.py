"""Allocations on this host: Slurm's node state and job steps, Kubernetes' devices, running NCCL tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..host import Host
from . import processes
from .busy import KUBELET, pods_with_gpus, slurm_steps

if TYPE_CHECKING:
    from .answer_types import JobsFacts

TESTS = [
    f"{name}_perf"
    for name in (
        "all_gather",
        "all_reduce",
        "alltoall",
        "broadcast",
        "gather",
        "hypercube",
        "reduce",
        "reduce_scatter",
        "scatter",
        "sendrecv",
    )
]
LIMIT_S = 15.0  # clients of a controller that is down wait


def read(host: Host, request: Mapping[str, Any]) -> JobsFacts:
    """{slurm_state, slurm_steps, kubernetes_pods, nccl_tests}.

    `slurm_state`: from sinfo, with its suffix ("idle", "allocated*", "reserved"); "" if this host is not a Slurm node.
    `slurm_steps`, `kubernetes_pods` and `nccl_tests` are counts, 0 without slurmd or kubelet; `nccl_tests` counts
    processes of nccl-tests of all users.
    """
    unread: dict[str, str] = {}
    pods: int | None = None
    try:
        gpu_pods = pods_with_gpus(host)
        pods = None if gpu_pods.unknown else len(gpu_pods.living)
        if gpu_pods.unknown:
            unread["kubernetes_pods"] = gpu_pods.why_unknown
    except OSError as error:
        unread["kubernetes_pods"] = f"{KUBELET}: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        unread["kubernetes_pods"] = f"{KUBELET} cannot be parsed"
    state, steps = _slurm_state(host, unread), slurm_steps(host)
    tests = processes.count(host, *TESTS)
    hidden = [name for name, count in (("slurm_steps", steps), ("nccl_tests", tests)) if count is None]
    unread |= dict.fromkeys(hidden, processes.HIDDEN)
    return {
        "slurm_state": state,
        "slurm_steps": steps,
        "nccl_tests": tests,
        "kubernetes_pods": pods,
        "unread": unread,
    }


def _slurm_state(host: Host, unread: dict[str, str]) -> str | None:
    """Node state from sinfo, which also knows allocations that have no process yet."""
    if host.which("sinfo") is None:
        return ""
    name = (host.value("/proc/sys/kernel/hostname") or os.uname().nodename).partition(".")[0]
    # --all: hidden partitions have jobs, too.
    result = host.run("sinfo", "--all", "--noheader", f"--nodes={name}", "--format=%T", limit=LIMIT_S)
    if not result.ok:
        unread["slurm_state"] = result.last_line
        return None
    # One line per partition; "n/a" for partitions without this node.
    states = [line.strip() for line in result.out.splitlines() if line.strip() not in ("", "n/a")]
    daemons = 0 if states else processes.count(host, "slurmd")
    if daemons != 0:
        daemon = (
            f"whether slurmd runs here is not known ({processes.HIDDEN})" if daemons is None else "slurmd runs here"
        )
        unread["slurm_state"] = f"{daemon}, and sinfo knows no node {name}"
        return None
    return states[0] if states else ""
