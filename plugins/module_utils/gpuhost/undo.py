"""Plan how to put settings back to what they were before gpuctl, leaving alone what somebody else changed since."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from .model import CONFLICT, DIFFERS, OK, UNKNOWN, Reading, Step, Unreadable, Unsupported
from .record import Owned
from .settings import refresh_after, show
from .view import View

# Putting these back disturbs what runs, as setting them did.
DISTURBS = {"irq": "moves interrupts of running devices", "restart": "restarts services"}


def plan(view: View, owned: Mapping[str, Owned], force: bool = False) -> list[Reading]:
    """One reading per knob. With `force` a setting that somebody else changed is taken back too."""
    by_knob = sorted((own for own in owned.values() if not _still_needed(view, own, owned)), key=lambda own: own.knob)
    return [_of_knob(view, name, list(group), force) for name, group in groupby(by_knob, key=lambda own: own.knob)]


def _still_needed(view: View, own: Owned, owned: Mapping[str, Owned]) -> bool:
    """Whether it is a package, and knobs of the same kind stay: it goes with the last one, whoever installed it."""
    kind = own.knob.partition(".")[0]
    staying = (other for setting, other in view.owned.items() if setting not in owned)
    return own.setting.startswith("package:") and any(other.knob.partition(".")[0] == kind for other in staying)


def _of_knob(view: View, knob: str, owned: list[Owned], force: bool) -> Reading:
    steps, strangers = [], []
    for own in owned:
        try:
            now = view.now(own.setting)
        except (OSError, Unreadable, Unsupported) as error:
            return Reading(
                knob, "as before", state=UNKNOWN, reason=f"cannot read {own.setting}: {error}", restores=True
            )
        back = now == own.original
        if back and own.unsure and refresh_after(own.setting):
            steps.append(Step(own.setting, now, now))  # so that the refresh runs, and the record is closed
        if back or _went_away(own.setting, now):
            continue
        if not own.holds(now):
            strangers.append(f"{own.setting} is {show(now)}, neither ours ({show(own.ours[-1])}) nor what it was")
        if own.holds(now) or force:
            steps.append(Step(own.setting, now, own.original))
    if strangers and not force:
        reason = "somebody else changed it: " + "; ".join(strangers) + " (take it back with --force)"
        return Reading(knob, "as before", state=CONFLICT, reason=reason, restores=True)
    state = DIFFERS if steps else OK
    disturbs = "; ".join(sorted({DISTURBS[kind] for s in steps if (kind := s.setting.partition(":")[0]) in DISTURBS}))
    return Reading(
        knob, "as before", now=_now(steps), state=state, steps=tuple(steps), disruptive=disturbs, restores=True
    )


def _went_away(setting: str, now: str | None) -> bool:
    """Whether the thing itself is no more (a processor, a device's interrupt, a process): nothing to put back."""
    return now is None and setting.startswith(("value:", "irq:", "restart:"))


def _now(steps: list[Step]) -> str:
    """For people: what it holds now, where that can be said in one word."""
    values = {show(step.before) for step in steps} or {"as before"}
    return values.pop() if len(values) == 1 else f"{len(steps)} settings to put back"
