"""Judge a host's answer: the same rules for every carrier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Not as asked for, and a person has to look: everything but what is right, was made right or waits for a reboot.
PROBLEMS = frozenset({"refused", "unknown", "failed", "contested", "conflict"})


def failures(knobs: Iterable[Mapping[str, Any]], strict: bool) -> list[Mapping[str, Any]]:
    """The knobs that make a run end with "problems found"; with `strict` also those the host cannot have."""
    return [k for k in knobs if k["state"] in PROBLEMS or (strict and k["state"] == "unsupported")]


def needs_reboot(knobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a setting waits for the next boot."""
    return any(k["state"] == "pending" and k["reboot"] for k in knobs)
