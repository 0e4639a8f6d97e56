"""Membership of GPUs in their NVLink fabric, by the fabric state that nvidia-smi reports. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.domain.node_facts import ABSENT

# NVML, nvmlDeviceGetGpuFabricInfo: "for Hopper or newer". What came with NVSwitches before has no fabric state.
_STATELESS = re.compile(r"\b(?:V100|A100|A800)\b")
Gpus = Sequence[Mapping[str, Any]]  # as in facts/gpu_xml.py


def states(gpus: Gpus) -> list[tuple[str, str | None]]:
    """Fabric state and status of the GPUs that report them; older drivers do not."""
    return [(gpu["fabric_state"], gpu["fabric_status"]) for gpu in gpus if gpu["fabric_state"]]


def not_joined(gpus: Gpus) -> list[str]:
    """The states, each once, of GPUs that have not joined: "In Progress (?)"."""
    rows = states(gpus)
    return sorted(
        {f"{s} ({status or '?'})" for s, status in rows if s != "Completed" or status not in (None, "Success")}
    )


def faults(gpus: Gpus) -> dict[int, str]:
    """Index of a GPU -> what its fabric health has against it; only newer drivers report it."""
    return {index: ", ".join(gpu["fabric_faults"]) for index, gpu in enumerate(gpus) if gpu.get("fabric_faults")}


def unreported(gpus: Gpus) -> list[bool]:
    """For each GPU, True if its status is missing, or its state although its model has one."""
    some = bool(states(gpus))
    return [
        gpu["fabric_status"] is None
        if gpu["fabric_state"] == "Completed"
        else gpu["fabric_state"] is None and (some or not _STATELESS.search(gpu["model"] or ""))
        for gpu in gpus
    ]


def unread(gpus: Gpus) -> dict[int, str]:
    """Index of a GPU -> why its state or status could not be read, though its driver prints them."""
    reasons = {
        index: gpu["unread"].get("fabric_state") or gpu["unread"].get("fabric_status", ABSENT)
        for index, gpu in enumerate(gpus)
    }
    return {index: reason for index, reason in reasons.items() if reason != ABSENT}
