"""The variables that decide how ranks talk to each other; all others stay where they are: they may hold secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

WANTED = re.compile(
    r"(NCCL|FI|UCX|OMPI_MCA|GLOO|TORCH_NCCL|RCCL)_\w+|OMP_NUM_THREADS|MASTER_(ADDR|PORT)|(LOCAL_|NODE_)?RANK|"
    r"(LOCAL_)?WORLD_SIZE|(CUDA|NVIDIA)_VISIBLE_DEVICES|OMPI_COMM_WORLD_(LOCAL_)?(RANK|SIZE)|PMIX?_RANK|PMI_SIZE|"
    r"SLURM_(PROCID|NTASKS)"
)


def read(host: Host, request: Mapping[str, Any]) -> dict[str, str]:
    """Those of the container."""
    return chosen(dict(os.environ))


def chosen(every: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in every.items() if WANTED.fullmatch(name)}


def of(host: Host, pid: int) -> dict[str, str] | None:
    """Those a process was started with; None where they may not be read."""
    try:
        text = host.read(f"/proc/{pid}/environ")
    except OSError:
        return None
    rows = (row.partition("=") for row in text.split("\0") if "=" in row)
    return chosen({name: value for name, _, value in rows})
