"""systemd units: their state at boot, and now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..model import Knob, Reading, Step, Unreadable, Unsupported
from ..resources.unit import HARMLESS, NOT_WRITABLE, runs, show
from ..snapshot import HostSnapshot
from ._common import all_failed, guarded, settled
from ._types import Type

BOOT = ("enabled", "disabled", "masked")
NOW = {"started": "active", "stopped": "inactive"}
TYPES_OF_UNITS = "service|socket|timer|path|mount|automount|swap|target|slice"
ADMIN = "/etc/systemd/system"


class UnitSpec(NamedTuple):
    """One word for the boot, one for now, or both: "enabled started", "masked", "stopped"."""

    unit: str

    def check(self, value: object) -> str:
        if self.unit.startswith("gpuctl-"):
            raise ValueError("must not be set: gpuctl manages its own units")
        tokens = str(value).split()
        boot, now = [w for w in tokens if w in BOOT], [w for w in tokens if w in NOW]
        if not tokens or len(boot) > 1 or len(now) > 1 or len(boot) + len(now) != len(tokens):
            raise ValueError(
                f"must be enabled, disabled or masked, and started or stopped, or one of both, not {value!r}"
            )
        if boot == ["masked"] and now == ["started"]:
            raise ValueError("cannot be masked and started")
        return " ".join(boot + now)


def type_of(key: str) -> Type | None:
    """Type of a key's value; a key is a unit's full name."""
    return UnitSpec(key) if re.fullmatch(rf"[\w@:.\\-]+\.({TYPES_OF_UNITS})", key) else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Readings of all units, with one query to systemd."""
    try:
        properties = show(snapshot.host, *(knob.key for knob in knobs))
    except (Unreadable, Unsupported) as reason:
        return all_failed(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(snapshot, knob, properties[knob.key])) for knob in knobs]  # type: ignore[misc]


def _read(snapshot: HostSnapshot, knob: Knob, properties: dict[str, str]) -> Reading:
    tokens = knob.value.split()
    boot = next((word for word in tokens if word in BOOT), "")
    now = next((NOW[word] for word in tokens if word in NOW), "")
    if properties["LoadState"] == "not-found":
        if boot == "enabled" or now == "active":
            raise Unsupported(f"{knob.key} is not installed here")
        return settled(knob, now="not installed", boot="not installed")
    steps: tuple[Step, ...] = ()
    if not _is_so(boot, properties["UnitFileState"]):
        _refuse_impossible(snapshot, knob, boot, properties["UnitFileState"])
        steps += (Step(f"unit:{knob.key}:boot", properties["UnitFileState"], boot),)
    if now and now != runs(properties["ActiveState"]):
        steps += (Step(f"unit:{knob.key}:now", runs(properties["ActiveState"]), now),)
    stops = any(step.after == "inactive" for step in steps) and not knob.key.endswith(HARMLESS)
    return settled(
        knob,
        now=properties["ActiveState"],
        boot=properties["UnitFileState"],
        steps=steps,
        disruptive=f"stops {knob.key}" if stops else "",
    )


def _is_so(desired: str, current: str) -> bool:
    """True if nothing is to do; a masked unit counts as disabled."""
    return desired in ("", current) or (desired == "disabled" and current.startswith("masked"))


def _refuse_impossible(snapshot: HostSnapshot, knob: Knob, desired: str, current: str) -> None:
    if desired == "masked":
        if snapshot.host.exists(f"{ADMIN}/{knob.key}"):
            raise Unsupported(f"a mask would replace its file {ADMIN}/{knob.key}: disable it instead")
    elif not current or current.startswith(NOT_WRITABLE):
        also = ": it can be masked" if desired == "disabled" else ""
        raise Unsupported(f"{knob.key} is {current or 'made by systemd'}, with nothing to enable or disable{also}")
