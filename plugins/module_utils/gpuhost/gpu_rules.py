"""Which GPUs of a host an entry of `gpu_settings` is for, and the MIG layout that each of them gets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from .model import Refused
from .smi import GpuState

ALL = "all"


def selected(gpus: Sequence[GpuState], entry: Mapping[str, Any]) -> list[GpuState]:
    """GPUs of an entry: those of `gpus` (all, or indexes) that match `filter`; `Refused` for an index without GPU."""
    indexes = range(len(gpus)) if entry["gpus"] == ALL else entry["gpus"]
    missing = sorted(set(indexes) - {gpu.index for gpu in gpus})
    if missing:
        numbers = ", ".join(map(str, missing))
        raise Refused(f"this host has no GPU {numbers}, only {len(gpus)}: give the host a group with another `gpus`")
    return [gpu for gpu in gpus if gpu.index in indexes and _matches(gpu, entry.get("filter", ()))]


def _matches(gpu: GpuState, patterns: Sequence[str]) -> bool:
    """True if a pattern is the GPU's PCI id ("0x233010DE") or matches its name; also if there are no patterns."""
    names = (gpu.name.lower(), gpu.device_id.lower())
    return not patterns or any(fnmatchcase(name, pattern.lower()) for name in names for pattern in patterns)


def layouts(gpus: Sequence[GpuState], value: str) -> dict[str, str]:
    """UUID -> MIG layout, for GPUs that an entry of `gpu.mig` is for; `Refused` if two entries are for one GPU."""
    desired: dict[str, str] = {}
    for entry in json.loads(value):
        for gpu in selected(gpus, entry):
            if gpu.uuid in desired:
                raise Refused(f"two entries of mig are for GPU {gpu.index}: make their `gpus` or `filter` differ")
            desired[gpu.uuid] = entry["layout"]
    return desired


def except_indexes(value: str) -> tuple[str, frozenset[int]]:
    """("default", {0, 1}) of "default except 0,1"."""
    mode, _, rest = value.partition(" except ")
    return mode, frozenset(int(index) for index in rest.split(",") if index)
