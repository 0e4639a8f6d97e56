"""Read a host against a profile: what is right, what differs, and the steps that would change it. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from . import undo
from .facts.busy import busy
from .kinds import KINDS
from .model import DIFFERS, PENDING, REFUSED, UNSUPPORTED, Knob, Reading
from .snapshot import View


def plan(view: View, knobs: Sequence[Knob], scope: str) -> list[Reading]:
    """A reading for every knob, and for every knob of an earlier run that is wanted no more."""
    names = {knob.name for knob in knobs}
    gone = {
        setting: own
        for setting, own in view.owned.items()
        if own.scope == scope and own.knob not in names and not _taken_over(setting, names)
    }
    return [*read(view, knobs), *undo.plan(view, gone)]


def _taken_over(setting: str, names: Collection[str]) -> bool:
    """Whether a wanted knob has the unit now that another one had: what it was at first stays on record."""
    kind, _, rest = setting.partition(":")
    return kind == "unit" and f"unit.{rest.rpartition(':')[0]}" in names


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """Kind by kind, so that each kind reads what its knobs share once; the order stays the profile's."""
    found = {}
    for kind in dict.fromkeys(knob.kind for knob in knobs):
        of_kind = [knob for knob in knobs if knob.kind == kind]
        found.update({reading.knob: reading for reading in KINDS[kind].read(view, of_kind)})
    return [_without_refused_steps(view, found[knob.name]) for knob in knobs]


def _without_refused_steps(view: View, reading: Reading) -> Reading:
    """Leave out what the kernel has refused since boot; a knob of which nothing else is left cannot be had here."""
    left = tuple(step for step in reading.steps if step.setting not in view.refused)
    if len(left) == len(reading.steps):
        return reading
    note = f"{len(reading.steps) - len(left)} settings are the kernel's own and stay as they are"
    if left or reading.refresh:
        return reading.but(steps=left, notes=(*reading.notes, note))
    return reading.but(steps=(), state=UNSUPPORTED, reason=note)


def spare_the_busy(view: View, readings: Sequence[Reading], allow_busy: bool) -> tuple[list[Reading], list[str]]:
    """Refuse what would disturb a running job. Also returns who keeps the host busy, if anything depends on it."""
    disturbs = any((r.disruptive and r.state == DIFFERS) or r.reboot or r.state == PENDING for r in readings)
    reasons = busy(view.host) if disturbs else []
    if not reasons or allow_busy:
        return list(readings), reasons
    why = f"this host is busy ({'; '.join(reasons)}): allow it with --allow-busy"
    return [
        r.but(state=REFUSED, reason=f"{r.disruptive}; {why}") if r.disruptive and r.state == DIFFERS else r
        for r in readings
    ], reasons
