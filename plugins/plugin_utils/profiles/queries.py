"""Queries over profiles: a knob's value in each, and the differences between two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .loading import load
from .lookup import names
from .model import Profile, Row

LEFT_ALONE = "left alone"


class Explained(NamedTuple):
    """A knob in one profile; `overlay` is empty for the row for all hosts."""

    profile: str
    overlay: str
    row: Row


class Difference(NamedTuple):
    """A knob with different values in two profiles; None if a profile does not set it."""

    knob: str
    overlay: str
    a: str | None
    b: str | None


def explain(knob: str, search: Sequence[Path] | None = None) -> list[Explained]:
    """The knob's rows in all profiles that set it."""
    explained = []
    for name in dict.fromkeys(explained.name for explained in names(search)):
        profile = load(name, search)
        variants = [("", profile.rows), *((overlay.name, overlay.rows) for overlay in profile.overlays)]
        explained += [Explained(name, overlay, rows[knob]) for overlay, rows in variants if knob in rows]
    return explained


def diff(a: Profile, b: Profile) -> list[Difference]:
    """Knobs that differ, as written in the profiles; those of overlays count separately."""
    ours, theirs = _flat(a), _flat(b)
    differences = []
    for overlay, knob in dict.fromkeys([*ours, *theirs]):
        (value, written), (other, other_written) = (flat.get((overlay, knob), (None, None)) for flat in (ours, theirs))
        if value != other:
            differences.append(Difference(knob, overlay, written, other_written))
    return differences


def _flat(profile: Profile) -> dict[tuple[str, str], tuple[Any, str]]:
    """(overlay, knob) -> (its value, how it is written)."""
    flat = {("", name): (row.value, row.written) for name, row in profile.rows.items()}
    for overlay in profile.overlays:
        flat.update({(overlay.name, name): (LEFT_ALONE, LEFT_ALONE) for name in overlay.drop})
        flat.update({(overlay.name, name): (row.value, row.written) for name, row in overlay.rows.items()})
    return flat
