"""systemd units: whether they start at boot and whether they run now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Knob, Reading, Step, Unreadable, Unsupported
from ..settings.unit import NOT_WRITABLE, show
from ..view import View
from ._common import all_alike, guarded, settled
from ._types import Type

BOOT = ("enabled", "disabled", "masked")
NOW = {"started": "active", "stopped": "inactive"}


class Wish(NamedTuple):
    """At most one word for the boot and one for now, such as "enabled started", "masked" or "stopped"."""

    def check(self, value: object) -> str:
        words = str(value).split()
        boot, now = [w for w in words if w in BOOT], [w for w in words if w in NOW]
        if not words or len(boot) > 1 or len(now) > 1 or len(boot) + len(now) != len(words):
            raise ValueError(
                f"must be enabled, disabled or masked, and started or stopped, or one of both, not {value!r}"
            )
        if boot == ["masked"] and now == ["started"]:
            raise ValueError("a masked unit cannot be started")
        return " ".join(boot + now)


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is a unit's full name."""
    return Wish() if "." in key and "/" not in key else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """All units in one question to systemd."""
    try:
        found = show(view.host, *(knob.key for knob in knobs))
    except (Unreadable, Unsupported) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(knob, found[knob.key])) for knob in knobs]  # type: ignore[misc]


def _read(knob: Knob, found: dict[str, str]) -> Reading:
    boot = next((word for word in knob.value.split() if word in BOOT), "")
    now = next((NOW[word] for word in knob.value.split() if word in NOW), "")
    if found["LoadState"] == "not-found":
        if boot == "enabled" or now == "active":
            raise Unsupported(f"{knob.key} is not installed here")
        return settled(knob, now="not installed", boot="not installed")
    if boot in ("enabled", "disabled") and found["UnitFileState"] in NOT_WRITABLE and boot != found["UnitFileState"]:
        raise Unsupported(f"{knob.key} is {found['UnitFileState']}: it has nothing to enable or disable")
    steps = _step(knob, "boot", found["UnitFileState"], boot) + _step(knob, "now", found["ActiveState"], now)
    # Stopping a timer ends nothing that runs.
    stops = any(step.after == "inactive" for step in steps) and not knob.key.endswith(".timer")
    return settled(
        knob,
        now=found["ActiveState"],
        boot=found["UnitFileState"],
        steps=steps,
        disruptive=f"stops {knob.key}" if stops else "",
    )


def _step(knob: Knob, side: str, held: str, wanted: str) -> tuple[Step, ...]:
    # A unit that failed does not run either, and a masked one does not start: nothing is left to do.
    if not wanted or held == wanted or (wanted, held) in (("inactive", "failed"), ("disabled", "masked")):
        return ()
    return (Step(f"unit:{knob.key}:{side}", held, wanted),)
