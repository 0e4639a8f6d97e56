"""Profiles as values: rows of settings, and overlays for some hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..strict_yaml import Mistake


@dataclass(frozen=True)
class Row:
    """One setting. `value` is the normal form that the engine compares, `written` the text in the file."""

    name: str
    value: Any
    written: str
    why: str
    source: str
    not_for: str = ""  # hosts for which it is not suitable
    read_back: str = ""  # a command that shows it on a host
    type: str = ""  # of a sysctl that gpuctl does not know: int, bytes or text
    where: str = ""


@dataclass(frozen=True)
class Overlay:
    """Changes for some hosts: rows that replace or extend the profile's, and knobs that are dropped."""

    name: str
    why: str
    when: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, Row]
    drop: tuple[str, ...]
    where: str = ""


@dataclass(frozen=True)
class Profile:
    """A profile with its inherited rows and overlays; `extends` names the profiles they are from, nearest first."""

    name: str
    about: str
    extends: tuple[str, ...]
    rows: Mapping[str, Row]
    overlays: tuple[Overlay, ...]


class ProfileError(ValueError):
    """A profile that cannot be used, with all its mistakes."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))
