"""Fields of `slurm_gres`: their types, and what they become."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol

AUTODETECT, TYPE, CORES = "autodetect", "type", "cores"
CONSTRAIN = {
    "constrain_devices": "ConstrainDevices",
    "constrain_cores": "ConstrainCores",
    "constrain_ram": "ConstrainRAMSpace",
    "constrain_swap": "ConstrainSwapSpace",
}


class FieldType(Protocol):
    """Type of a field's value."""

    def check(self, value: object) -> Any:
        """The checked value; ValueError with the problem, as in "must be …"."""


class Switch(NamedTuple):
    """True or false."""

    def check(self, value: object) -> bool:
        known = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if str(value).lower() not in known:
            raise ValueError(f"must be true or false, not {value!r}")
        return known[str(value).lower()]


class Detection(NamedTuple):
    """Source of the GPUs: NVML inside slurmd, or lines that gpuctl writes. YAML reads off as false."""

    def check(self, value: object) -> str:
        text = "off" if value is False else str(value).lower()
        if text not in ("nvml", "off"):
            raise ValueError(f"must be nvml or off, not {value!r}")
        return text


class GpuType(NamedTuple):
    """A word that jobs ask for, such as h100 in --gres=gpu:h100:2."""

    def check(self, value: object) -> str:
        if isinstance(value, bool) or not re.fullmatch(r"(?=.*[a-z])[a-z0-9][a-z0-9_.-]{0,62}", str(value)):
            raise ValueError(
                f"must be a word of lower-case letters, digits, _, . and -, with a letter, such as h100, not {value!r}"
            )
        return str(value)


TYPES: dict[str, FieldType] = {AUTODETECT: Detection(), TYPE: GpuType(), CORES: Switch()}
TYPES.update(dict.fromkeys(CONSTRAIN, Switch()))
