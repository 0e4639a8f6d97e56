"""Plan how to put settings back to what they were before gpuctl, leaving alone what somebody else changed since."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from .host import Host
from .kinds import BOOT_KNOB, NEEDS_BOOT_UNIT
from .model import CONFLICT, DIFFERS, OK, UNKNOWN, Reading, Step, Unreadable, Unsupported
from .record import Owned
from .resources import make, refresh_after, show
from .resources.unit import HARMLESS
from .snapshot import View

# Putting these back disturbs what runs, as setting them did.
DISTURBS = {"irq": "moves interrupts of running devices", "restart": "restarts services"}
UNREADABLE = (OSError, ValueError, Unreadable, Unsupported)


def plan(view: View, owned: Mapping[str, Owned], force: bool = False) -> list[Reading]:
    """One reading per knob. With `force` a setting that somebody else changed is taken back too."""
    by_knob = sorted((own for own in owned.values() if not _still_needed(view, own, owned)), key=lambda own: own.knob)
    return [_of_knob(view, name, list(group), force) for name, group in groupby(by_knob, key=lambda own: own.knob)]


def _still_needed(view: View, own: Owned, owned: Mapping[str, Owned]) -> bool:
    """Whether it serves several knobs, and one of them stays: it goes with the last one, whoever put it there."""
    staying = {other.knob.partition(".")[0] for setting, other in view.owned.items() if setting not in owned}
    if own.knob == BOOT_KNOB.name:
        return bool(staying & NEEDS_BOOT_UNIT)
    return own.setting.startswith("package:") and own.knob.partition(".")[0] in staying


def _of_knob(view: View, knob: str, owned: list[Owned], force: bool) -> Reading:
    steps, strangers = [], []
    for own in owned:
        try:
            now = view.now(own.setting)
        except UNREADABLE as error:
            return Reading(
                knob, "as before", state=UNKNOWN, reason=f"cannot read {own.setting}: {error}", restores=True
            )
        back = now == own.original
        if back and own.unsure and refresh_after(own.setting):
            steps.append(Step(own.setting, now, now))  # so that the refresh runs, and the record is closed
        if back or went_away(own.setting, now):
            continue
        if not own.holds(now):
            strangers.append(f"{own.setting} is {show(now)}, neither ours ({show(own.ours[-1])}) nor what it was")
        if own.holds(now) or force:
            steps.append(Step(own.setting, now, own.original))
    if strangers and not force:
        reason = "somebody else changed it: " + "; ".join(strangers) + " (take it back with --force)"
        return Reading(knob, "as before", state=CONFLICT, reason=reason, restores=True)
    state = DIFFERS if steps else OK
    disturbs = "; ".join(sorted({_disturbs(step) for step in steps} - {""}))
    return Reading(
        knob, "as before", now=_now(steps), state=state, steps=tuple(steps), disruptive=disturbs, restores=True
    )


def went_away(setting: str, now: str | None) -> bool:
    """Whether the thing itself is no more (a processor, a device's interrupt, a process): nothing to put back."""
    return now is None and setting.startswith(("value:", "irq:", "restart:"))


def _disturbs(step: Step) -> str:
    kind, _, rest = step.setting.partition(":")
    unit, _, side = rest.rpartition(":")
    if kind == "unit" and side == "now" and step.after == "inactive" and not unit.endswith(HARMLESS):
        return f"stops {unit}"
    return DISTURBS.get(kind, "")


def unlike(host: Host, step: Step) -> str:
    """Why a step that put something back did not reach its end; empty where it did, or where none can be seen."""
    if step.setting.startswith("restart:"):
        return ""
    try:
        now = make(step.setting).read(host)
    except UNREADABLE as error:
        return f"cannot be read back: {error}"
    same = now == step.after or went_away(step.setting, now)
    return "" if same else f"asked for {show(step.after)}, the host holds {show(now)}"


def _now(steps: list[Step]) -> str:
    """For people: what it holds now, where that can be said in one word."""
    values = {show(step.before) for step in steps} or {"as before"}
    return values.pop() if len(values) == 1 else f"{len(steps)} settings to put back"
