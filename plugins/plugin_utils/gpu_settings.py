"""The variable `gpu_settings`, as knobs of the kind `gpu` for the engine."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds.gpu import TYPES

from .strict_yaml import Mistake, Node, did_you_mean, from_plain

NAME = "gpu_settings"
WHY = {
    "persistence": "GPUs stay initialised between jobs: the next one starts seconds earlier, and their settings stay",
    "ecc": "memory errors are corrected and counted; without it they are silent",
    "mig": "splits GPUs into instances of fixed sizes, again after every boot",
    "power_limit": "keeps the rack within its power",
    "graphics_clock": "equal clocks make ranks of a job equally fast",
    "memory_clock": "equal clocks make ranks of a job equally fast",
    "compute_mode": "a mode that was left behind keeps every second process off the GPU",
    "mps": "programs share a GPU at the same time instead of in turns",
}


def knobs(node: Node, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    """Knobs in the engine's form and order; all mistakes are collected, with the place of the node they are in."""
    if not isinstance(node.value, dict):
        example = "as in {persistence: on, power_limit: 500}"
        if node.value:
            mistakes.append(Mistake(node.where, f"{NAME} is not a mapping", example))
        return []
    mistakes += [
        Mistake(item.where, f"there is no GPU setting {name}", did_you_mean(name, list(TYPES)))
        for name, item in node.value.items()
        if name not in TYPES
    ]
    rows = []
    for name, kind in TYPES.items():
        item = node.value.get(name)
        if item is None:
            continue
        try:
            value = kind.check(item.plain())
        except ValueError as error:
            mistakes.append(Mistake(_place(item, str(error)), f"{NAME}.{name} {error}"))
            continue
        rows.append({"name": f"gpu.{name}", "value": value, "why": WHY[name], "source": f"the variable {NAME}"})
    return rows


def _place(item: Node, problem: str) -> str:
    """The place of the entry that a problem names, such as "entry 2 needs instances", else of the whole value."""
    match = re.match(r"entry (\d+) ", problem)
    return item.value[int(match.group(1)) - 1].where if match and isinstance(item.value, list) else item.where


def from_variables(value: object, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    """Knobs of the variable's value; places in `mistakes` are paths such as "gpu_settings.mig"."""
    return knobs(from_plain(value, NAME), mistakes)
