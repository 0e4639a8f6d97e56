"""Driver versions: order, branch, and the upstream part of a package's version."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DRIVER = re.compile(r"[1-9]\d{2}(\.\d{1,3}){1,2}")
_UPSTREAM = re.compile(r"(?:\d+:)?([1-9]\d{2}(?:\.\d{1,3}){1,2})(?![\d.])")


@dataclass(frozen=True, order=True)
class DriverVersion:
    """A driver's full version (580.178.04), ordered by its numbers."""

    parts: tuple[int, ...]
    text: str

    @property
    def branch(self) -> int:
        return self.parts[0]

    def __str__(self) -> str:
        return self.text


def driver_version(text: str) -> DriverVersion | None:
    """Parse 580.178.04 or 570.26; None for anything else, a branch alone included."""
    if not _DRIVER.fullmatch(text):
        return None
    return DriverVersion(tuple(int(part) for part in text.split(".")), text)


def upstream(text: str) -> DriverVersion | None:
    """The driver version in a package's version ("3:580.178.04-1.el9", "535.309.01-1~deb12u1"); None if it has none."""
    match = _UPSTREAM.match(text)
    return driver_version(match[1]) if match else None
