"""Actions that change a host's settings, or show what was changed: tune, undo, repair, records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from . import plan as planning
from . import record as records
from . import undo as undoing
from .converge import Run, converge
from .facts import machine
from .facts.machine import Machine
from .host import Host
from .kinds import BOOT_PROGRAMS
from .lock import last_run, lock
from .model import DIFFERS, FAILED, OK, PENDING, REFUSED, UNSUPPORTED, InvalidRequest, Knob, Reading
from .overlays import select
from .record import Owned, Record
from .resources import show
from .snapshot import HostSnapshot

READ_ONLY = "its disk cannot be written"


def tune(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """State of each knob of a profile, changed unless in check mode; see `_visit`."""
    profile = request["profile"]
    snapshot = _snapshot(host)
    knobs, notes = select(profile, snapshot.machine)
    scopes = {request.get("scope", "profile")}
    if profile.get("gpu_settings") is not None:  # of the inventory, tuned in the same visit
        knobs += [Knob(**knob) for knob in profile["gpu_settings"]]
    for variable in records.VARIABLES.values():
        if profile.get(variable) is not None:
            knobs += [Knob(**knob) for knob in profile[variable]]
            scopes.add(variable)
    if profile.get("gpu_settings") is not None or any(knob.kind == "gpu" for knob in knobs):
        scopes.add(records.GPU_SCOPE)
    knobs += [program for program, kinds in BOOT_PROGRAMS.items() if any(knob.kind in kinds for knob in knobs)]
    run = Run("tune", request.get("scope", "profile"), profile["name"], request.get("actor", ""))

    def read(snapshot: HostSnapshot) -> list[Reading]:
        return planning.plan(snapshot, knobs, scopes)

    return {"profile": profile["name"], "notes": notes, **_visit(snapshot, request, run, read)}


def undo(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """State of each knob that gpuctl changed, restored unless in check mode; see `_visit`."""
    to = request.get("to") or ""
    if to:
        _check_target(host, to)
    run = Run("undo", request.get("scope", ""), "", request.get("actor", ""), to)
    only = request.get("only") or []
    snapshot = _snapshot(host, to)
    _check_known(_mine(snapshot, run), only)

    def read(snapshot: HostSnapshot) -> list[Reading]:
        return undoing.plan(snapshot, _chosen(_mine(snapshot, run), only), force=bool(request.get("force")))

    return _visit(snapshot, request, run, read)


def _check_target(host: Host, to: str) -> None:
    """Refuse a record that does not exist, or whose settings were undone since: undo never sets a value again."""
    history = records.load(host)
    names = [record.name for record in history]
    if to not in names:
        raise InvalidRequest(f"there is no record {to}", f"this host has {', '.join(names) or 'none'}")
    then = records.owned([record for record in history if record.name <= to])
    lost = sorted({entry.knob for setting, entry in then.items() if setting not in records.owned(history)})
    if lost:
        wrong = f"its settings have been undone since: {', '.join(lost[:6])}{' …' if len(lost) > 6 else ''}"
        raise InvalidRequest(f"cannot go back to record {to}: {wrong}", "tune-nodes sets it again")


def _mine(snapshot: HostSnapshot, run: Run) -> dict[str, Owned]:
    return {s: entry for s, entry in snapshot.owned.items() if not run.scope or entry.scope == run.scope}


def _check_known(owned: dict[str, Owned], only: list[str]) -> None:
    unknown = [pattern for pattern in only if not any(_fits(entry.knob, pattern) for entry in owned.values())]
    if unknown:
        changed = sorted({entry.knob for entry in owned.values()}, key=lambda knob: _unlike(knob, unknown[0]))
        shown = ", ".join(changed[:6]) + (f" and {len(changed) - 6} more" if len(changed) > 6 else "")
        raise InvalidRequest(
            f"gpuctl has not changed {', '.join(unknown)} here", f"it has changed: {shown or 'nothing'}"
        )


def _unlike(knob: str, name: str) -> tuple[float, str]:
    """Sort key: the most similar names first."""
    from difflib import SequenceMatcher  # slow to load, and needed for error messages only

    return -SequenceMatcher(None, knob, name).ratio(), knob


def _chosen(owned: dict[str, Owned], only: list[str]) -> dict[str, Owned]:
    """The settings of the knobs asked for, and the boot programs', which go with the last knob that needs them."""
    if not only:
        return owned
    patterns = [*only, *(program.name for program in BOOT_PROGRAMS)]
    return {s: entry for s, entry in owned.items() if any(_fits(entry.knob, pattern) for pattern in patterns)}


def _fits(knob: str, pattern: str) -> bool:
    """True for a name, a pattern, or the kind alone."""
    return fnmatchcase(knob, pattern) or knob.partition(".")[0] == pattern


def _visit(
    snapshot: HostSnapshot, request: Mapping[str, Any], run: Run, read: Callable[[HostSnapshot], list[Reading]]
) -> dict[str, Any]:
    """Plan; unless in check mode, lock, plan again if another run may have come between, apply, and read back."""
    host = snapshot.host

    def plan(snapshot: HostSnapshot) -> tuple[list[Reading], list[str]]:
        readings = read(snapshot)
        if records.can_be_kept(host):  # else the whole host is read-only, and is reported as such
            readings = planning.refuse_unwritable(snapshot, readings)
        return planning.spare_the_busy(snapshot, readings, bool(request.get("allow_busy")))

    before, busy = plan(snapshot)
    answer = {"machine": snapshot.machine.as_dict(), "busy": busy, "record": None, "unrecorded": ""}
    due = any(r.state == DIFFERS for r in before)
    read_only = due and not records.can_be_kept(host)
    if request.get("check") or not due:
        rows = [as_dict(r, host) for r in planning.tell_what_is_lost(before)]
        return {**answer, "read_only": read_only, "knobs": rows}
    if read_only:
        raise InvalidRequest(READ_ONLY, "gpuctl changes nothing that it cannot record: make the disk writable")
    with lock(host, run.by) as earlier:
        if earlier is None or earlier != snapshot.last_run:  # another run may have changed what we have read
            snapshot = _snapshot(host, run.to, snapshot.machine)
            before, busy = plan(snapshot)
        name, errors, unrecorded, changed = converge(host, run, before)
        readings = read(_snapshot(changed, run.to, snapshot.machine))
        more = [] if unrecorded else [r for r in readings if _comes_to_light(r, before)]
        if more:
            try:
                _, more_errors, unrecorded, changed = converge(host, run, more)
            except OSError as error:  # not recorded, so not changed
                more_errors = {step.setting: str(error) for r in more for step in r.steps}
            errors.update(more_errors)
            readings = read(_snapshot(changed, run.to, snapshot.machine))
        after = {r.knob: r for r in readings}
    results = planning.tell_what_is_lost([_result(r, after.get(r.knob), errors) for r in before])
    rows = [as_dict(result, host, was=r if r.state == DIFFERS else None) for r, result in zip(before, results)]
    return {**answer, "busy": busy, "record": name, "unrecorded": unrecorded, "knobs": rows}


def _comes_to_light(reading: Reading, before: Sequence[Reading]) -> bool:
    """True if a knob differs only in settings that showed up during the run, such as a swap area outside fstab."""
    known = {step.setting for earlier in before if earlier.knob == reading.knob for step in earlier.steps}
    return bool(known) and reading.state == DIFFERS and not known & {step.setting for step in reading.steps}


def _result(before: Reading, after: Reading | None, errors: Mapping[str, str]) -> Reading:
    """State of a knob after the run; a knob that still differs has failed, with the system's error as the reason."""
    if before.state == OK and after and after.state == DIFFERS:
        return after.but(state=FAILED, reason="another setting of this run changed it: leave one of the two out")
    if before.state != DIFFERS:
        return before
    wrong = sorted({errors[s.setting] for s in before.steps if errors.get(s.setting)} | _of(before.refresh, errors))
    if after is None or _is_restored(after):  # undone: no knob to read any more, or only its record is open
        after = before.but(state=OK, now="as before", boot=None)
    if after.state in (OK, PENDING, UNSUPPORTED) and not [w for w in wrong if not w.startswith("unsupported")]:
        return after.but(steps=before.steps)
    if after.state in (DIFFERS, OK) or (after.state == REFUSED and wrong):  # what failed may not be tried again
        mismatch = f"asked for {before.desired}, the host holds {after.now}" + (
            f", {after.boot} after a reboot" if after.boot else ""
        )
        return after.but(state=FAILED, steps=before.steps, reason="; ".join(wrong) or mismatch)
    return after.but(steps=before.steps)


def _is_restored(after: Reading) -> bool:
    left = [step for step in after.steps if not step.setting.startswith(undoing.NOT_COMPARED)]
    return after.restores and bool(after.steps) and all(step.before == step.after for step in left)


def _of(names: tuple[str, ...], errors: Mapping[str, str]) -> set[str]:
    return {errors[name] for name in names if name in errors}


def _snapshot(host: Host, since: str = "", facts: Machine | None = None) -> HostSnapshot:
    """What a plan reads. `facts`: of the machine, if they are known already; a run does not change them."""
    ended = last_run(host)  # before anything else is read
    history = records.load(host)
    boot_id = host.value("/proc/sys/kernel/random/boot_id") or ""
    return HostSnapshot(
        host,
        facts or machine.read(host),
        records.owned(history, since),
        records.refused(history, boot_id),
        records.reverted_restarts(history, boot_id),
        ended,
    )


def as_dict(reading: Reading, host: Host, was: Reading | None = None) -> dict[str, Any]:
    """A reading as plain values. `was`: its state before this run, if the run changed the knob."""
    row: dict[str, Any] = {
        "knob": reading.knob,
        "desired": reading.desired,
        "now": reading.now,
        "boot": reading.boot,
        "state": reading.state,
        "reason": reading.reason,
        "changed": was is not None and reading.state != FAILED,
        "reboot": reading.reboot,
        "restores": reading.restores,
        "disruptive": reading.disruptive,
        "conflicts": [c._asdict() for c in reading.conflicts],
        "notes": list(reading.notes),
        "steps": [{"setting": s.setting, "before": show(s.before), "after": show(s.after)} for s in reading.steps],
    }
    if was is not None:
        row["was"] = {"now": was.now, "boot": was.boot}
    return row


def repair(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Complete what dpkg or rpm was interrupted in; `repaired`: its packages, or in check mode those that it would."""
    from .resources import deb, rpm  # with the modules of packages: no other action needs them

    of_dpkg = bool(host.which("dpkg-query"))
    if request.get("check"):
        return {"repaired": deb.interrupted(host) if of_dpkg else rpm.unfinished(host)}
    if not records.can_be_kept(host):
        raise InvalidRequest(READ_ONLY, "make the disk writable")
    with lock(host, str(request.get("actor", ""))):
        try:
            return {"repaired": deb.repair(host) if of_dpkg else rpm.repair(host)}
        except RuntimeError as error:
            look = "dpkg --audit" if of_dpkg else "dnf check"
            raise InvalidRequest(str(error), f"look at {look} on the host; a full disk needs room first") from error


def kept_records(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs that this host has records of, without their settings."""
    history: list[Record] = records.load(host)
    kept = ("name", "action", "scope", "profile", "by", "at", "done", "to")
    return {"records": [{**{k: getattr(r, k) for k in kept}, "settings": len(r.entries)} for r in history]}
