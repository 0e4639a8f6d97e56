"""Choose the knobs of a profile for a host: the profile's own, changed by the overlays that match the host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from .facts.machine import UNKNOWN, Machine
from .model import Knob

CONDITIONS = ("machine", "distribution", "family", "version", "arch", "vendor", "gpus", "nics", "memory")
MEMORY = re.compile(r"(>=|<)(\d+)GiB")


def select(profile: Mapping[str, Any], machine: Machine) -> tuple[list[Knob], list[str]]:
    """(knobs, notes) for this host. An unknown fact matches no overlay, and a note says so."""
    chosen = {knob["name"]: Knob(**knob) for knob in profile["knobs"]}
    notes = []
    for overlay in profile.get("overlays", ()):
        unsure = [name for name in overlay["when"] if _values(machine, name) == [UNKNOWN]]
        if unsure:
            notes.append(f"overlay {overlay['name']!r} left out: this host's {', '.join(unsure)} is unknown")
        elif all(_matches(machine, name, patterns) for name, patterns in overlay["when"].items()):
            for name in overlay.get("drop", ()):
                chosen.pop(name, None)
            chosen.update({knob["name"]: Knob(**knob) for knob in overlay.get("knobs", ())})
            notes.append(f"overlay {overlay['name']!r} applies")
    return list(chosen.values()), notes


def _matches(machine: Machine, name: str, patterns: Sequence[str]) -> bool:
    if name != "memory":
        return _fits(_values(machine, name), patterns)
    return any(_compares(int(machine.memory[:-3]), pattern) for pattern in patterns)


def _compares(gib: int, pattern: str) -> bool:
    """Compare a host's memory with a pattern such as ">=64GiB" or "<64GiB"."""
    match = MEMORY.fullmatch(pattern)
    if match is None:
        raise ValueError(f"{pattern!r} is no limit of memory")
    return (gib >= int(match[2])) is (match[1] == ">=")


def _values(machine: Machine, name: str) -> list[str]:
    value = getattr(machine, name)
    return list(value) if isinstance(value, tuple) else [value]


def _fits(values: Sequence[str], patterns: Sequence[str]) -> bool:
    """True if any value matches any pattern; the pattern "none" matches a host without values."""
    if not values:
        return "none" in patterns
    return any(fnmatchcase(value.lower(), pattern.lower()) for value in values for pattern in patterns)
