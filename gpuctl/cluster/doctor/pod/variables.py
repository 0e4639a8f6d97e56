"""Environment variables that affect communication; all others may hold secrets and never leave the pod."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

RELEVANT = re.compile(
    r"(NCCL|FI|UCX|OMPI_MCA|GLOO|TORCH_NCCL|RCCL)_\w+|OMP_NUM_THREADS|MASTER_(ADDR|PORT)|(LOCAL_|NODE_)?RANK|"
    r"(LOCAL_)?WORLD_SIZE|(CUDA|NVIDIA)_VISIBLE_DEVICES|OMPI_COMM_WORLD_(LOCAL_)?(RANK|SIZE)|PMIX?_RANK|PMI_SIZE|"
    r"SLURM_(PROCID|NTASKS)"
)


def read(host: Host, request: Mapping[str, Any]) -> dict[str, str]:
    """Return the container's variables."""
    return chosen(dict(os.environ))


def chosen(every: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in every.items() if RELEVANT.fullmatch(name)}


def environment_of(host: Host, pid: int) -> dict[str, str] | None:
    """Return the variables that a process was started with; None if they are not readable."""
    try:
        text = host.read(f"/proc/{pid}/environ")
    except OSError:
        return None
    rows = (row.partition("=") for row in text.split("\0") if "=" in row)
    return chosen({name: value for name, _, value in rows})
