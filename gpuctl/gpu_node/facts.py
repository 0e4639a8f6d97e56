"""Facts of a host as values, from the dict that the probe returns (`gpuhost/facts/stack.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.engine import fact_types, typed_json
from gpuctl.gpu_node.model import HostGpuFacts


def host_gpu_facts(plain: Mapping[str, Any]) -> HostGpuFacts:
    """Build the facts; `typed_json.Misfit` for a missing or unknown one, or a value of another type."""
    typed_json.read(plain, fact_types.Stack)  # strict: fields of the values below have defaults
    return typed_json.read(plain, HostGpuFacts)
