"""What schedulers have given away or reserved on this host: Slurm's node, its steps, Kubernetes' devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..host import Host
from . import processes
from .busy import KUBELET, pods_with_gpus, slurm_steps

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
LIMIT_S = 15.0  # a controller that is down keeps its clients waiting


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{slurm_state, slurm_steps, kubernetes_pods, nccl_tests}.

    `slurm_state`: as sinfo has it with its mark ("idle", "allocated*", "reserved"), "" where this host is no node of
    Slurm's. The next two count what holds something here; without slurmd and kubelet that is none. `nccl_tests`:
    how many processes of nccl-tests run, whoever began them.
    """
    unread: dict[str, str] = {}
    pods: int | None = None
    try:
        told = pods_with_gpus(host)
        pods = None if told.untold else len(told.living)
        if told.untold:
            unread["kubernetes_pods"] = told.why_untold
    except OSError as error:
        unread["kubernetes_pods"] = f"{KUBELET}: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        unread["kubernetes_pods"] = f"{KUBELET} cannot be understood"
    state, steps = _slurm_state(host, unread), slurm_steps(host)
    counts = {"slurm_steps": steps, "nccl_tests": processes.called(host, *TESTS)}
    unread |= {name: processes.HIDDEN for name, count in counts.items() if count is None}
    return {"slurm_state": state, **counts, "kubernetes_pods": pods, "unread": unread}


def _slurm_state(host: Host, unread: dict[str, str]) -> str | None:
    """Slurm knows of allocations and reservations that have no process here yet."""
    if host.which("sinfo") is None:
        return ""
    name = (host.value("/proc/sys/kernel/hostname") or os.uname().nodename).partition(".")[0]
    # --all: partitions that are hidden from this user have jobs, too.
    said = host.run("sinfo", "--all", "--noheader", f"--nodes={name}", "--format=%T", limit=LIMIT_S)
    if not said.ok:
        unread["slurm_state"] = said.said
        return None
    # A line for each partition; for those without this node it is "n/a".
    states = [line.strip() for line in said.out.splitlines() if line.strip() not in ("", "n/a")]
    daemons = 0 if states else processes.called(host, "slurmd")
    if daemons != 0:
        here = f"whether slurmd runs here is not known ({processes.HIDDEN})" if daemons is None else "slurmd runs here"
        unread["slurm_state"] = f"{here}, and sinfo knows no node {name}"
        return None
    return states[0] if states else ""
