"""Judge a host's answer, by the same rules for every carrier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# States that need a person: all but right, changed, and pending.
PROBLEMS = frozenset({"refused", "unknown", "failed", "contested", "conflict"})


def failures(knobs: Iterable[Mapping[str, Any]], *, strict: bool) -> list[Mapping[str, Any]]:
    """Knobs that make a run fail; with `strict` also unsupported ones."""
    return [k for k in knobs if k["state"] in PROBLEMS or (strict and k["state"] == "unsupported")]


def needs_reboot(knobs: Iterable[Mapping[str, Any]]) -> bool:
    """True if a setting takes effect at the next boot."""
    return any(k["state"] == "pending" and k["reboot"] for k in knobs)
