"""A pod's GPUs, parsed from nvidia-smi's XML: the values that gpuhost reads, and those that only the doctor needs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Tree
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpuctl.cluster.doctor.model import PodFacts
from gpuctl.engine import gpu_xml

# XML paths by driver generation, newest first.
POWER = ("gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw")
LIMIT = ("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "power_readings/power_limit")
DEFAULT = ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")
LINK = "pci/pci_gpu_link_info"


@dataclass(frozen=True)
class Gpu:
    """None: nvidia-smi does not report it. `values`: what gpu_xml reads."""

    index: int
    values: Mapping[str, Any]
    power_w: float | None
    limit_w: float | None
    default_w: float | None
    temperature_c: float | None
    sm_mhz: float | None
    link_gen: float | None
    most_gen: float | None
    link_width: float | None
    most_width: float | None
    persistence: str

    @property
    def busy(self) -> int | None:
        value = self.values["busy_percent"]
        return None if value is None else int(value)


@dataclass(frozen=True)
class Gpus:
    """`why`: reason for an empty list. `complaint`: error line of an nvidia-smi that failed."""

    gpus: tuple[Gpu, ...] = ()
    why: str = ""
    complaint: str = field(default="")
    late: bool = False
    missing: bool = False


def gpus_of(inside: PodFacts) -> Gpus:
    """Return the GPUs in a pod's probe answer."""
    answer = inside.values.get("gpu") or {}
    if why := inside.unread("gpu"):
        return Gpus(why=why)
    complaint, late = str(answer.get("error") or ""), bool(answer.get("late"))
    if not answer.get("xml"):
        missing = bool(answer.get("missing"))
        return Gpus(why=complaint or "nvidia-smi printed nothing", complaint=complaint, late=late, missing=missing)
    try:
        gpus = _parsed(str(answer["xml"]))
    except ValueError as error:
        return Gpus(why=complaint or str(error), complaint=complaint)
    return Gpus(gpus, complaint=complaint)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[Gpu, ...]:
    values = gpu_xml.parse(text)["gpus"]
    root = Tree.fromstring(text[text.find("<") :])  # noqa: S314 - the pod's own nvidia-smi
    both = zip(values, root.findall("gpu"), strict=True)
    return tuple(_gpu(number, *parts) for number, parts in enumerate(both))


def _gpu(index: int, values: Mapping[str, Any], gpu: Tree.Element) -> Gpu:
    return Gpu(
        index,
        values,
        power_w=_number(gpu, *POWER),
        limit_w=_number(gpu, *LIMIT),
        default_w=_number(gpu, *DEFAULT),
        temperature_c=_number(gpu, "temperature/gpu_temp"),
        sm_mhz=_number(gpu, "clocks/sm_clock"),
        link_gen=_number(gpu, f"{LINK}/pcie_gen/current_link_gen"),
        most_gen=_number(gpu, f"{LINK}/pcie_gen/max_link_gen"),
        link_width=_number(gpu, f"{LINK}/link_widths/current_link_width"),
        most_width=_number(gpu, f"{LINK}/link_widths/max_link_width"),
        persistence=(gpu.findtext("persistence_mode") or "").strip(),
    )


def _number(gpu: Tree.Element, *paths: str) -> float | None:
    """Return the first of these paths that holds a number."""
    for path in paths:
        if match := re.match(r"\s*(-?\d+(?:\.\d+)?)", gpu.findtext(path) or ""):
            return float(match[1])
    return None
