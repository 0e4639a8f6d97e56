"""A profile as values: rows of wanted settings, overlays for some hosts, and the mistakes a file can hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple


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


class Mistake(NamedTuple):
    """One thing that is wrong with a profile: where it stands, what is wrong, what to try."""

    where: str
    wrong: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.wrong}" + (f"; {self.hint}" if self.hint else "")


class ProfileError(ValueError):
    """A profile that cannot be used, with every mistake that was found in it."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint: the closest known name, or all of them."""
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"it can be {', '.join(known)}" if known else ""
