"""The variable `slurm_gres`, as knobs of the kind `slurm` for the engine."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds.slurm import FIELDS
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.slurm.fields import AUTODETECT, TYPE, TYPES

from .strict_yaml import Mistake, Node, did_you_mean, from_plain

NAME = "slurm_gres"
WHY = {
    "gres": "gives jobs the GPUs that they ask for, with the processor cores near them",
    "cgroup": "keeps jobs from the GPUs, cores and memory of others",
}


def knobs(node: Node, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    """Knobs in the engine's form; all mistakes are collected, with their places."""
    if not isinstance(node.value, dict):
        mistakes.append(
            Mistake(node.where, f"{NAME} is not a mapping", "as in {autodetect: off, constrain_devices: true}")
        )
        return []
    before = len(mistakes)
    mistakes += [
        Mistake(item.where, f"there is no setting {name} of Slurm", did_you_mean(name, list(TYPES)))
        for name, item in node.value.items()
        if name not in TYPES
    ]
    values: dict[str, Any] = {}
    for name, kind in TYPES.items():
        item = node.value.get(name)
        if item is None or item.value is None:
            continue
        try:
            values[name] = kind.check(item.plain())
        except ValueError as error:
            mistakes.append(Mistake(item.where, f"{NAME}.{name} {error}"))
    if values.get(AUTODETECT) == "nvml" and TYPE in values:
        fix = "remove type, or set autodetect to off"
        mistakes.append(Mistake(node.value[TYPE].where, f"{NAME}.{TYPE} has no effect: NVML names the types", fix))
    if len(mistakes) > before:
        return []
    return [
        {"name": f"slurm.{key}", "value": json.dumps(some), "why": WHY[key], "source": f"the variable {NAME}"}
        for key, names in FIELDS.items()
        if (some := {name: values[name] for name in names if name in values})
    ]


def from_variables(value: object, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    """The knobs of the variable's value; places in `mistakes` are paths such as "slurm_gres.type"."""
    return knobs(from_plain(value, NAME), mistakes)
