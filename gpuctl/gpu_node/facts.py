"""Facts of a host as values, from the dict that the probe returns (`gpuhost/facts/stack.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gpuctl.gpu_node.model import HostGpuFacts, PciGpu


def host_gpu_facts(plain: Mapping[str, Any]) -> HostGpuFacts:
    """Build the facts; KeyError for a missing key, TypeError for an unknown one."""
    unknown = plain.keys() - {field.name for field in fields(HostGpuFacts)}
    if unknown:
        raise TypeError(f"unknown facts: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {field.name: plain[field.name] for field in fields(HostGpuFacts)}
    gpus = values["gpus"]
    values["gpus"] = None if gpus is None else [PciGpu(**gpu) for gpu in gpus]
    # A list would make the facts unhashable.
    hashable: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in values.items()}
    return HostGpuFacts(**hashable)
