"""Files in which the last line for a key counts: that line, and conflicting ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ..model import Conflict


class KeyedLine(NamedTuple):
    """One line: its key, the value in gpuctl's terms, and the text as written."""

    key: str
    value: str
    path: str
    number: int
    text: str


def for_key(lines: Sequence[KeyedLine], key: str) -> list[KeyedLine]:
    """Lines for a key, in order; the last one counts."""
    return [line for line in lines if line.key == key]


def rivals(owner: str, lines: Sequence[KeyedLine], desired: str, ours: str, due: bool) -> list[Conflict]:
    """Lines of a key with another value. `due`: ours is not written yet, and will be last in our file."""
    conflicts = []
    for line in lines:
        if line.value == desired or (due and line.path == ours):
            continue
        behind = line.path == ours or _rank(line.path) > _rank(ours)
        conflicts.append(Conflict(owner, f"{line.path}:{line.number}", line.text, wins=behind and line == lines[-1]))
    return conflicts


def _rank(path: str) -> tuple[bool, str]:
    """Sort key: the main file is first, then files of drop-in folders by name, whatever their folder."""
    folder, name = os.path.split(path)
    return folder.endswith(".d"), name
