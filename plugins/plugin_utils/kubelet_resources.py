"""The variable `kubelet_resources`, as a knob of the kind `kubelet` for the engine."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import kubelet
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kubelet.fields import TYPES

from .strict_yaml import Mistake, Node, did_you_mean, from_plain

NAME = "kubelet_resources"
WHY = "gives pods whole processors and memory near their GPUs, and keeps some of both for the system"


def knobs(node: Node, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    """One knob in the engine's form, none for an empty variable; all mistakes are collected, with their places."""
    if not isinstance(node.value, dict):
        mistakes.append(Mistake(node.where, f"{NAME} is not a mapping", "as in {cpu_manager_policy: static}"))
        return []
    before = len(mistakes)
    mistakes += [
        Mistake(item.where, f"there is no resource {name} of the kubelet", did_you_mean(name, list(TYPES)))
        for name, item in node.value.items()
        if name not in TYPES
    ]
    values = {}
    for name, kind in TYPES.items():
        item = node.value.get(name)
        if item is None:
            continue
        try:
            values[name] = kind.check(item.plain())
        except ValueError as error:
            mistakes.append(Mistake(_place(item, str(error)), f"{NAME}.{name} {error}"))
    if not values or len(mistakes) > before:
        return []
    row = {"name": "kubelet.resources", "value": kubelet.desired_text(values), "why": WHY}
    return [{**row, "source": f"the variable {NAME}"}]


def _place(item: Node, problem: str) -> str:
    """The place of the entry that a problem names, such as "entry 2 needs …", else of the whole value."""
    match = re.match(r"entry (\d+)\b", problem)
    return item.value[int(match.group(1)) - 1].where if match and isinstance(item.value, list) else item.where


def from_variables(value: object, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    """The knob of the variable's value; places in `mistakes` are paths such as "kubelet_resources.reserved_cpus"."""
    return knobs(from_plain(value, NAME), mistakes)
