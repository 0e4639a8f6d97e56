"""Compare a host with a profile: the state of every knob, and the steps that would change it. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from posixpath import dirname

from . import undo
from .facts.busy import busy
from .kinds import BOOT_PROGRAMS, HAVE_OWNERS, KINDS, WITHOUT_PROGRAM
from .model import CONTESTED, DIFFERS, OK, PENDING, REFUSED, UNKNOWN, UNSUPPORTED, Knob, Reading, Step
from .resources import file_of, kernel_file_of
from .snapshot import HostSnapshot

MIG_FIRST = "the MIG layout changes first: reboot if that waits for it, and run again"


def plan(snapshot: HostSnapshot, knobs: Sequence[Knob], scopes: Collection[str]) -> list[Reading]:
    """A reading for every knob, and an undo reading for every knob of an earlier run that the profile lacks."""
    names = {knob.name for knob in knobs}
    gone = {
        setting: entry
        for setting, entry in snapshot.owned.items()
        if entry.scope in scopes and entry.knob not in names and not _taken_over(setting, names)
    }
    return _refused_before_mig([*read(snapshot, knobs), *undo.plan(snapshot, gone)])


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
    return _refused_before_mig([_unknown_if_unsearched(snapshot, reading) for reading in complete])


def _refused_before_mig(readings: Sequence[Reading]) -> list[Reading]:
    """Refuse lines of gres.conf while MIG changes or waits for a reboot: they are of the layout before."""
    mig = [reading for reading in readings if reading.knob == "gpu.mig"]
    if not any(one.reboot or any(map(_is_of_mig, one.steps)) for one in mig):
        return list(readings)
    return [one.but(state=REFUSED, steps=(), reason=MIG_FIRST) if _has_gpu_lines(one) else one for one in readings]


def _has_gpu_lines(reading: Reading) -> bool:
    return reading.knob == "slurm.gres" and not reading.restores and reading.state != UNSUPPORTED


def _is_of_mig(step: Step) -> bool:
    return step.setting.startswith("gpu:") and step.setting.endswith(":mig")


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
    """Refuse changes of files that cannot be written, as on a read-only /etc, or in a container on /proc/sys."""
    return [_refused_if_unwritable(snapshot, r) if r.state == DIFFERS else r for r in readings]


def _refused_if_unwritable(snapshot: HostSnapshot, reading: Reading) -> Reading:
    files = (file_of(step.setting) for step in reading.steps)
    fixed = sorted({dirname(path) for path in files if path and not snapshot.host.can_write(dirname(path))})
    kernel = (kernel_file_of(step.setting) for step in reading.steps)
    closed = [path for path in kernel if path and not snapshot.host.can_write(path)]
    if closed:
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        reason = f"{closed[0]}{more} cannot be written here: set this on the machine that it belongs to"
        return reading.but(state=REFUSED, reason=reason)
    if not fixed:
        return reading
    reason = f"{', '.join(fixed)} cannot be written: make it writable, or set this in the image of the host"
    return reading.but(state=REFUSED, reason=reason)


def tell_what_is_lost(readings: Sequence[Reading]) -> list[Reading]:
    """A knob is not OK whose value a program of ours would set at boot, where that program is not there."""
    missing = {
        kind: reading
        for program, kinds in BOOT_PROGRAMS.items()
        for reading in readings
        if reading.knob == program.name and not reading.restores and reading.state not in (OK, DIFFERS, PENDING)
        for kind in kinds
    }
    return [_lost_without(missing.get(r.knob.partition(".")[0]), r) for r in readings]


def _lost_without(program: Reading | None, reading: Reading) -> Reading:
    kept = reading.state != OK or reading.restores or reading.boot is None or reading.knob in WITHOUT_PROGRAM
    if program is None or kept:
        return reading
    name = program.knob.partition(".")[2]
    reason = f"it is lost at the next boot without {name}, which is {program.state}"
    return reading.but(state=CONTESTED, boot="kernel default", reason=reason)


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
