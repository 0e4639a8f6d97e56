"""Whether a knob exists and takes a value: the kinds of the engine are asked, here on the controller."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import KINDS
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds._types import BY_NAME, Type

from ..strict_yaml import Mistake
from .parse import DraftRow

# What people look for under another kind.
INSTEAD = {
    "cmdline.transparent_hugepage": "thp.enabled",
    "cmdline.hugepages": "sysctl.vm.nr_hugepages",
    "sysctl.vm.transparent_hugepage": "thp.enabled",
}
SYSCTL_KEY = re.compile(r"[a-z0-9_-]+([./][A-Za-z0-9_-]+)+")


def normal(row: DraftRow, type_name: str, known: Iterable[str], mistakes: list[Mistake]) -> Any:
    """The value as the engine compares it; None, with the reason among the mistakes, where the row cannot be used."""
    try:
        knob_type = type_of(row.name, type_name, known)
    except ValueError as error:
        mistakes.append(Mistake(row.where, *error.args))
        return None
    node = row.fields["value"]
    try:
        return knob_type.check(node.plain())
    except ValueError as error:
        mistakes.append(Mistake(node.where, f"{row.name} {error}"))
        return None


def type_of(name: str, type_name: str = "", known: Iterable[str] = ()) -> Type:
    """What values a knob takes, or ValueError(what is wrong, hint). `type_name`: of a sysctl gpuctl does not know."""
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
    """Every knob that the kinds list by name; some kinds take any name of the right form."""
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
