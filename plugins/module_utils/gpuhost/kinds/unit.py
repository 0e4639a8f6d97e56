"""systemd units: whether they start at boot and whether they run now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..model import Knob, Reading, Step, Unreadable, Unsupported
from ..resources.unit import HARMLESS, NOT_WRITABLE, runs, show
from ..snapshot import View
from ._common import all_alike, guarded, settled
from ._types import Type

BOOT = ("enabled", "disabled", "masked")
NOW = {"started": "active", "stopped": "inactive"}
TYPES_OF_UNITS = "service|socket|timer|path|mount|automount|swap|target|slice"
ADMIN = "/etc/systemd/system"


class Wish(NamedTuple):
    """At most one word for the boot and one for now, such as "enabled started", "masked" or "stopped"."""

    unit: str

    def check(self, value: object) -> str:
        if self.unit.startswith("gpuctl-"):
            raise ValueError("must not be set: gpuctl looks after its own units")
        words = str(value).split()
        boot, now = [w for w in words if w in BOOT], [w for w in words if w in NOW]
        if not words or len(boot) > 1 or len(now) > 1 or len(boot) + len(now) != len(words):
            raise ValueError(
                f"must be enabled, disabled or masked, and started or stopped, or one of both, not {value!r}"
            )
        if boot == ["masked"] and now == ["started"]:
            raise ValueError("cannot be masked and started")
        return " ".join(boot + now)


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is a unit's full name."""
    return Wish(key) if re.fullmatch(rf"[\w@:.\\-]+\.({TYPES_OF_UNITS})", key) else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """All units in one question to systemd."""
    try:
        found = show(view.host, *(knob.key for knob in knobs))
    except (Unreadable, Unsupported) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, found[knob.key])) for knob in knobs]  # type: ignore[misc]


def _read(view: View, knob: Knob, found: dict[str, str]) -> Reading:
    words = knob.value.split()
    boot = next((word for word in words if word in BOOT), "")
    now = next((NOW[word] for word in words if word in NOW), "")
    if found["LoadState"] == "not-found":
        if boot == "enabled" or now == "active":
            raise Unsupported(f"{knob.key} is not installed here")
        return settled(knob, now="not installed", boot="not installed")
    steps: tuple[Step, ...] = ()
    if not _is_so(boot, found["UnitFileState"]):
        _refuse_impossible(view, knob, boot, found["UnitFileState"])
        steps += (Step(f"unit:{knob.key}:boot", found["UnitFileState"], boot),)
    if now and now != runs(found["ActiveState"]):
        steps += (Step(f"unit:{knob.key}:now", runs(found["ActiveState"]), now),)
    stops = any(step.after == "inactive" for step in steps) and not knob.key.endswith(HARMLESS)
    return settled(
        knob,
        now=found["ActiveState"],
        boot=found["UnitFileState"],
        steps=steps,
        disruptive=f"stops {knob.key}" if stops else "",
    )


def _is_so(wanted: str, held: str) -> bool:
    """A masked unit does not start at boot either: for "disabled" nothing is left to do."""
    return wanted in ("", held) or (wanted == "disabled" and held.startswith("masked"))


def _refuse_impossible(view: View, knob: Knob, wanted: str, held: str) -> None:
    if wanted == "masked":
        if view.host.exists(f"{ADMIN}/{knob.key}"):
            raise Unsupported(f"a mask stands where its own file is, {ADMIN}/{knob.key}: it can be disabled")
    elif not held or held.startswith(NOT_WRITABLE):
        also = ": it can be masked" if wanted == "disabled" else ""
        raise Unsupported(f"{knob.key} is {held or 'made by systemd'}, with nothing to enable or disable{also}")
