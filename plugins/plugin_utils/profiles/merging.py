"""Merge a profile with the one that it extends, row by row, and check the result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..strict_yaml import Mistake
from .model import Overlay, Profile, Row
from .parse import Draft, DraftOverlay, DraftRow
from .values import normal

NEEDED = ("value", "why", "source")


def merge(base: Profile | None, draft: Draft, mistakes: list[Mistake], *, base_known: bool = True) -> Profile:
    """The draft merged over its base. If the base could not be read, incomplete rows are no mistakes."""
    return _Merger(base or Profile("", "", (), {}, ()), draft, mistakes, base_known).profile()


class _Merger:
    def __init__(self, base: Profile, draft: Draft, mistakes: list[Mistake], base_known: bool) -> None:
        self.base = base
        self.draft = draft
        self.mistakes = mistakes
        self.base_known = base_known

    def wrong(self, where: str, wrong: str, hint: str) -> None:
        self.mistakes.append(Mistake(where, wrong, hint))

    def profile(self) -> Profile:
        inherited = _all_rows(self.base)
        self.dropped(self.draft.drop, inherited)
        rows = {name: row for name, row in self.base.rows.items() if name not in self.draft.drop}
        rows |= self.rows(self.draft.rows.values(), inherited)
        # A knob in a profile is meant for all hosts: inherited overlays must not change it.
        mine = self.draft.rows.keys() | self.draft.drop.keys()
        overlays = [replace(o, rows=_without(o.rows, mine)) for o in self.base.overlays]
        for overlay in self.draft.overlays:
            overlays.append(self.overlay(overlay, inherited | rows, overlays))
        extends = (self.base.name, *self.base.extends) if self.base.name else ()
        return Profile(self.draft.name, self.draft.about, extends, rows, tuple(overlays))

    def overlay(self, draft: DraftOverlay, inherited: Mapping[str, Row], earlier: list[Overlay]) -> Overlay:
        if draft.name in {overlay.name for overlay in self.base.overlays}:
            wrong = f"there is an overlay {draft.name!r} already, in a profile that this one extends"
            self.wrong(draft.where, wrong, "choose another name")
        for overlay in earlier:
            inherited = {**overlay.rows, **inherited}
        self.dropped(draft.drop, inherited)
        rows = self.rows(draft.rows.values(), inherited)
        return Overlay(draft.name, draft.why, draft.when, rows, tuple(draft.drop), draft.where)

    def dropped(self, drop: Mapping[str, str], inherited: Mapping[str, Row]) -> None:
        for name, where in drop.items():
            if name not in inherited and self.base_known:
                self.wrong(where, f"drops {name}, which is not set anyway", "leave it out")

    def rows(self, drafts: Iterable[DraftRow], inherited: Mapping[str, Row]) -> dict[str, Row]:
        return {draft.name: self.row(draft, inherited.get(draft.name), inherited) for draft in drafts}

    def row(self, draft: DraftRow, base: Row | None, known: Iterable[str]) -> Row:
        """The row, with missing fields from the inherited one. A wrong value is a mistake and becomes None."""
        missing = draft.missing(NEEDED) if base is None and self.base_known else []
        if missing:
            self.wrong(draft.where, f"{draft.name} needs {', '.join(missing)}", "it is not inherited")
        kind = draft.texts.get("type", base.type if base else "")
        value, written = (base.value, base.written) if base else (None, "")
        if draft.value is not None:
            value, written = normal(draft, draft.value, kind, known, self.mistakes), _written(draft.value.plain())
        return Row(
            draft.name,
            value,
            written,
            draft.texts.get("why", base.why if base else ""),
            draft.texts.get("source", self.source(base, written)),
            draft.texts.get("not_for", base.not_for if base else ""),
            draft.texts.get("read_back", base.read_back if base else ""),
            kind,
            draft.where,
        )

    def source(self, base: Row | None, written: str) -> str:
        """The source of an inherited row with a new value, unless the draft has one."""
        if base is None or base.written == written:
            return base.source if base else ""
        return f"profile {self.draft.name}, instead of {base.written} ({base.source})"


def _all_rows(profile: Profile) -> dict[str, Row]:
    """Every knob that a profile sets on some host, preferably with the row for all hosts."""
    by_name: dict[str, Row] = {}
    for rows in (*(overlay.rows for overlay in profile.overlays), profile.rows):
        by_name.update(rows)
    return by_name


def _without(rows: Mapping[str, Row], names: Iterable[str]) -> dict[str, Row]:
    left_out = set(names)
    return {name: row for name, row in rows.items() if name not in left_out}


def _written(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return value if isinstance(value, str) else json.dumps(value)
