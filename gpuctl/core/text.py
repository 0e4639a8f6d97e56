"""Text formatting helpers."""

from __future__ import annotations

from collections.abc import Iterable


def named(names: Iterable[str], most: int = 6) -> str:
    """Join names: "a, b and 3 more" if there are more than `most`."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def plural(count: int, word: str) -> str:
    """1 host, 2 hosts."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
