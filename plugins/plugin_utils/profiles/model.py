"""A profile as values: rows of wanted settings, overlays for some hosts, and the mistakes a file can hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..strict_yaml import Mistake


@dataclass(frozen=True)
class Row:
    """One wanted setting. `value` is the normal form that the engine compares, `written` what the file says."""

    name: str
    value: Any
    written: str
    why: str
    source: str
    not_for: str = ""  # hosts it does not suit
    read_back: str = ""  # how to see it on a host
    type: str = ""  # only for a sysctl that gpuctl does not know: int, bytes or text
    where: str = ""


@dataclass(frozen=True)
class Overlay:
    """What is different on some hosts: rows set over the profile's own, and knobs left alone."""

    name: str
    why: str
    when: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, Row]
    drop: tuple[str, ...]
    where: str = ""


@dataclass(frozen=True)
class Profile:
    """A profile with everything that it extends already in it; `extends` names those, the nearest first."""

    name: str
    about: str
    extends: tuple[str, ...]
    rows: Mapping[str, Row]
    overlays: tuple[Overlay, ...]


class ProfileError(ValueError):
    """A profile that cannot be used, with every mistake that was found in it."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))
