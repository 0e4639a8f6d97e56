"""Compare a host with a profile: the state of every knob, and the steps that would change it. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from posixpath import dirname

from . import undo
from .facts.busy import busy
from .kinds import HAVE_OWNERS, KINDS
from .model import DIFFERS, OK, PENDING, REFUSED, UNKNOWN, UNSUPPORTED, Knob, Reading
from .resources import file_of
from .snapshot import HostSnapshot


def plan(snapshot: HostSnapshot, knobs: Sequence[Knob], scopes: Collection[str]) -> list[Reading]:
    """A reading for every knob, and an undo reading for every knob of an earlier run that the profile lacks."""
    names = {knob.name for knob in knobs}
    gone = {
        setting: entry
        for setting, entry in snapshot.owned.items()
        if entry.scope in scopes and entry.knob not in names and not _taken_over(setting, names)
    }
    return [*read(snapshot, knobs), *undo.plan(snapshot, gone)]


def _taken_over(setting: str, names: Collection[str]) -> bool:
    """True if a knob of the profile now sets the unit that another knob set; the original state stays recorded."""
    kind, _, rest = setting.partition(":")
    return kind == "unit" and f"unit.{rest.rpartition(':')[0]}" in names


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Readings in the order of the knobs. Each kind reads all its knobs at once, so that it reads shared files once."""
    readings = {}
    for kind in dict.fromkeys(knob.kind for knob in knobs):
        of_kind = [knob for knob in knobs if knob.kind == kind]
        readings.update({reading.knob: reading for reading in KINDS[kind].read(snapshot, of_kind)})
    complete = [_without_refused_steps(snapshot, readings[knob.name]) for knob in knobs]
    return [_unknown_if_unsearched(snapshot, reading) for reading in complete]


def _unknown_if_unsearched(snapshot: HostSnapshot, reading: Reading) -> Reading:
    """A knob is not OK while another owner may be in a file that was not searched."""
    unsearched = snapshot.owners.search.unsearched
    if not unsearched or reading.state != OK or reading.knob.partition(".")[0] not in HAVE_OWNERS:
        return reading
    more = f" and {len(unsearched) - 1} more" if len(unsearched) > 1 else ""
    reason = f"another owner may set it at boot: not searched: {unsearched[0]}{more}"
    return reading.but(state=UNKNOWN, reason=reason)


def _without_refused_steps(snapshot: HostSnapshot, reading: Reading) -> Reading:
    """Drop steps that the kernel has refused since boot; a knob with no other steps is unsupported."""
    left = tuple(step for step in reading.steps if step.setting not in snapshot.refused)
    if len(left) == len(reading.steps):
        return reading
    note = f"{len(reading.steps) - len(left)} settings are the kernel's own and stay as they are"
    if left or reading.refresh:
        return reading.but(steps=left, notes=(*reading.notes, note))
    return reading.but(steps=(), state=UNSUPPORTED, reason=note)


def refuse_unwritable(snapshot: HostSnapshot, readings: Sequence[Reading]) -> list[Reading]:
    """Refuse changes of files that cannot be written, as on a read-only /etc."""
    return [_refused_if_unwritable(snapshot, r) if r.state == DIFFERS else r for r in readings]


def _refused_if_unwritable(snapshot: HostSnapshot, reading: Reading) -> Reading:
    files = (file_of(step.setting) for step in reading.steps)
    fixed = sorted({dirname(path) for path in files if path and not snapshot.host.can_write(dirname(path))})
    if not fixed:
        return reading
    reason = f"{', '.join(fixed)} cannot be written: make it writable, or set this in the image of the host"
    return reading.but(state=REFUSED, reason=reason)


def spare_the_busy(
    snapshot: HostSnapshot, readings: Sequence[Reading], allow_busy: bool
) -> tuple[list[Reading], list[str]]:
    """Refuse changes that would disturb a running job. Also returns why the host is busy, if that matters."""
    disturbs = any((r.disruptive and r.state == DIFFERS) or r.reboot or r.state == PENDING for r in readings)
    reasons = busy(snapshot.host) if disturbs else []
    if not reasons or allow_busy:
        return list(readings), reasons
    why = f"this host is busy ({'; '.join(reasons)}): allow it with --allow-busy"
    return [
        r.but(state=REFUSED, reason=f"{r.disruptive}; {why}") if r.disruptive and r.state == DIFFERS else r
        for r in readings
    ], reasons
