"""Files whose last line for a key counts: which one that is, and who says otherwise than we."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ..model import Conflict


class Said(NamedTuple):
    """One line: what it gives a value, that value in gpuctl's terms, and as it stands there."""

    key: str
    value: str
    path: str
    number: int
    text: str


def of(lines: Sequence[Said], key: str) -> list[Said]:
    """The lines for a key, in order; the last one counts."""
    return [line for line in lines if line.key == key]


def rivals(owner: str, lines: Sequence[Said], wanted: str, ours: str, due: bool) -> list[Conflict]:
    """The lines of a key that say otherwise. `due`: ours is still to be written, at the end of our file."""
    found = []
    for line in lines:
        if line.value == wanted or (due and line.path == ours):
            continue
        behind = line.path == ours or _rank(line.path) > _rank(ours)
        found.append(Conflict(owner, f"{line.path}:{line.number}", line.text, wins=behind and line == lines[-1]))
    return found


def _rank(path: str) -> tuple[bool, str]:
    """The one main file is read first, then those of the drop-in folders by name, whatever folder they are in."""
    folder, name = os.path.split(path)
    return folder.endswith(".d"), name
