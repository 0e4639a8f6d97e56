"""Text formatting helpers."""

from __future__ import annotations

from collections.abc import Iterable


def named(names: Iterable[str], most: int = 6) -> str:
    """The first few, and how many more."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
