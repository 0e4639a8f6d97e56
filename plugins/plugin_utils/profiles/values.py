"""Check names and values of knobs on the controller, by the kinds of the engine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import KINDS
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds._types import BY_NAME, Type

from ..strict_yaml import Mistake, Node
from .parse import DraftRow

# Names that users expect under another kind.
INSTEAD = {
    "cmdline.transparent_hugepage": "thp.enabled",
    "cmdline.hugepages": "sysctl.vm.nr_hugepages",
    "sysctl.vm.transparent_hugepage": "thp.enabled",
}
SYSCTL_KEY = re.compile(r"[a-z0-9_-]+([./][A-Za-z0-9_-]+)+")


def normal(row: DraftRow, value: Node, type_name: str, known: Iterable[str], mistakes: list[Mistake]) -> Any:
    """The normal form of a row's value; None, with the reason in `mistakes`, if it is wrong."""
    try:
        knob_type = type_of(row.name, type_name, known)
    except ValueError as error:
        mistakes.append(Mistake(row.where, *error.args))
        return None
    try:
        return knob_type.check(value.plain())
    except ValueError as error:
        mistakes.append(Mistake(value.where, f"{row.name} {error}"))
        return None


def type_of(name: str, type_name: str = "", known: Iterable[str] = ()) -> Type:
    """Type of a knob's value; ValueError(problem, hint) if there is none. `type_name` is for unknown sysctls."""
    kind, _, key = name.partition(".")
    knob_type: Type | None = KINDS[kind].type_of(key) if kind in KINDS and key else None
    if not type_name:
        if knob_type is None:
            raise ValueError(f"there is no knob {name}", _hint(name, known))
        return knob_type
    if knob_type is not None or kind != "sysctl" or not SYSCTL_KEY.fullmatch(key):
        raise ValueError(f"{name} takes no `type`: that is for a sysctl that gpuctl does not know", "leave it out")
    if type_name not in BY_NAME:
        raise ValueError(f"there is no type {type_name!r}", f"use {', '.join(BY_NAME)}")
    return BY_NAME[type_name]


def known_names() -> list[str]:
    """Knobs that the kinds list by name; some kinds accept any name of the right form."""
    return [f"{kind}.{key}" for kind, module in KINDS.items() for key in getattr(module, "TYPES", ())]


def _hint(name: str, known: Iterable[str]) -> str:
    if name in INSTEAD:
        return f"{INSTEAD[name]} sets that"
    close = get_close_matches(name, [*known_names(), *known], 1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]}?"
    if name.startswith("sysctl."):
        return "if the kernel has it, add `type: int`, `bytes` or `text`"
    return f"a knob's name starts with its kind: {', '.join(KINDS)}"
