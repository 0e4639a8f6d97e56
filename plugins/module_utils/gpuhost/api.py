"""One visit to a host: the same request and answer for every carrier (Ansible, ssh, a recorded folder)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from . import plan as planning
from . import record as records
from . import undo
from .converge import Run, converge
from .facts import machine
from .host import Host
from .kinds import BOOT_KNOB, NEEDS_BOOT_UNIT
from .lock import Locked, lock
from .model import DIFFERS, FAILED, OK, PENDING, UNSUPPORTED, Reading
from .overlays import select
from .record import Owned, Record
from .resources import show
from .snapshot import View

FORM = 1
READ_ONLY = "its disk cannot be written"


class InvalidRequest(Exception):
    """The request cannot be carried out on this host; `hint` says what to try."""

    def __init__(self, wrong: str, hint: str) -> None:
        super().__init__(wrong)
        self.hint = hint


def visit(request: Mapping[str, Any], host: Host | None = None) -> dict[str, Any]:
    """Carry out a request and answer in plain values.

    The request: `action` ("tune", "undo", "records", "facts"), `check` (change nothing), `by` (who asks), and
    for tune: `profile` (compiled), `scope`, `allow_busy`; for undo: `scope`, `to`, `only`, `force`, `allow_busy`;
    for facts: `subjects` ("nccl", and what facts/gather.py takes).
    The answer has `error` (`wrong`, `hint`) or what the action gives; see `_tune`.
    """
    host = host or Host()
    try:
        if not host.root and os.geteuid() != 0 and request["action"] not in FOR_ANYBODY:
            raise InvalidRequest("this needs root on the host", "give the host ansible_become: true, or log in as root")
        return {"form": FORM, **ACTIONS[request["action"]](host, request)}
    except InvalidRequest as error:
        return {"form": FORM, "error": {"wrong": str(error), "hint": error.hint}}
    except Locked as error:
        return {
            "form": FORM,
            "error": {"wrong": str(error), "hint": "wait for it to end, then run this again"},
        }
    except records.UnreadableRecord as error:
        return {
            "form": FORM,
            "error": {"wrong": str(error), "hint": f"look at the files in {records.FOLDER}"},
        }
    except OSError as error:  # of one setting it is that setting's reading: this concerns the whole host
        wrong = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return {"form": FORM, "error": {"wrong": wrong, "hint": "gpuctl changes nothing that it cannot record"}}


def _tune(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    profile = request["profile"]
    view = _view(host)
    knobs, notes = select(profile, view.machine)
    if any(knob.kind in NEEDS_BOOT_UNIT for knob in knobs):
        knobs.append(BOOT_KNOB)
    run = Run("tune", request.get("scope", "profile"), profile["name"], request.get("by", ""))

    def read(view: View) -> list[Reading]:
        return planning.plan(view, knobs, run.scope)

    return {"profile": profile["name"], "notes": notes, **_visit(view, request, run, read)}


def _undo(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    to = request.get("to") or ""
    if to:
        _check_way_back(host, to)
    run = Run("undo", request.get("scope", ""), "", request.get("by", ""), to)
    only = request.get("only") or []
    view = _view(host, to)
    _check_known(_mine(view, run), only)

    def read(view: View) -> list[Reading]:
        return undo.plan(view, _chosen(_mine(view, run), only), force=bool(request.get("force")))

    return _visit(view, request, run, read)


def _check_way_back(host: Host, to: str) -> None:
    """The record is there, and what it left has not been put back since: undo takes back, it sets nothing anew."""
    found = records.load(host)
    names = [record.name for record in found]
    if to not in names:
        raise InvalidRequest(f"there is no record {to}", f"this host has {', '.join(names) or 'none'}")
    then = records.owned([record for record in found if record.name <= to])
    lost = sorted({own.knob for setting, own in then.items() if setting not in records.owned(found)})
    if lost:
        wrong = f"what it left has been put back since: {', '.join(lost[:6])}{' …' if len(lost) > 6 else ''}"
        raise InvalidRequest(f"cannot go back to record {to}: {wrong}", "tune-nodes sets it again")


def _mine(view: View, run: Run) -> dict[str, Owned]:
    return {s: own for s, own in view.owned.items() if not run.scope or own.scope == run.scope}


def _check_known(owned: dict[str, Owned], only: list[str]) -> None:
    unknown = [pattern for pattern in only if not any(fnmatchcase(own.knob, pattern) for own in owned.values())]
    if unknown:
        changed = sorted({own.knob for own in owned.values()}, key=lambda knob: _unlike(knob, unknown[0]))
        shown = ", ".join(changed[:6]) + (f" and {len(changed) - 6} more" if len(changed) > 6 else "")
        raise InvalidRequest(
            f"gpuctl has not changed {', '.join(unknown)} here", f"it has changed: {shown or 'nothing'}"
        )


def _unlike(knob: str, asked: str) -> tuple[float, str]:
    """For sorting: what is spelt most like what was asked for comes first."""
    from difflib import SequenceMatcher  # takes its time to load, and is needed where something went wrong alone

    return -SequenceMatcher(None, knob, asked).ratio(), knob


def _chosen(owned: dict[str, Owned], only: list[str]) -> dict[str, Owned]:
    """The settings of the knobs asked for, and the boot unit's, which goes with the last knob that needs it."""
    if not only:
        return owned
    patterns = [*only, BOOT_KNOB.name]
    return {s: own for s, own in owned.items() if any(fnmatchcase(own.knob, pattern) for pattern in patterns)}


def _visit(view: View, request: Mapping[str, Any], run: Run, read: Callable[[View], list[Reading]]) -> dict[str, Any]:
    """Plan; unless only checking, lock, plan again under the lock, carry out and read back."""
    host, allow_busy = view.host, bool(request.get("allow_busy"))
    before, busy = planning.spare_the_busy(view, read(view), allow_busy)
    answer = {"machine": view.machine.as_dict(), "busy": busy, "record": None}
    due = any(r.state == DIFFERS for r in before)
    read_only = due and not records.can_be_kept(host)
    if request.get("check") or not due:
        return {**answer, "read_only": read_only, "knobs": [as_dict(r, host) for r in before]}
    if read_only:
        raise InvalidRequest(READ_ONLY, "gpuctl changes nothing that it cannot record: see to its disk")
    with lock(host, run.by):
        view = _view(host, run.to)
        before, busy = planning.spare_the_busy(view, read(view), allow_busy)
        name, errors = converge(host, run, before)
        found = read(_view(host, run.to))
        more = [r for r in found if _comes_to_light(r, before)]
        if more:
            errors.update(converge(host, run, more)[1])
            found = read(_view(host, run.to))
        after = {r.knob: r for r in found}
    results = [_result(r, after.get(r.knob), errors) for r in before]
    told = [as_dict(result, host, was=r if r.state == DIFFERS else None) for r, result in zip(before, results)]
    return {**answer, "busy": busy, "record": name, "knobs": told}


def _comes_to_light(found: Reading, before: Sequence[Reading]) -> bool:
    """Whether it differs in what could not be seen before: systemd finds a swap area itself once fstab is silent."""
    known = {step.setting for reading in before if reading.knob == found.knob for step in reading.steps}
    return bool(known) and found.state == DIFFERS and not known & {step.setting for step in found.steps}


def _result(before: Reading, after: Reading | None, errors: Mapping[str, str]) -> Reading:
    """How a knob stands after the run; what still differs has failed, and the system's own words say why."""
    if before.state == OK and after and after.state == DIFFERS:
        return after.but(state=FAILED, reason="another setting of this run changed it: leave one of the two out")
    if before.state != DIFFERS:
        return before
    wrong = sorted({errors[s.setting] for s in before.steps if errors.get(s.setting)} | _of(before.refresh, errors))
    after = after or before.but(state=OK, now="as before", boot=None)  # put back: there is nothing to read any more
    if after.state in (OK, PENDING, UNSUPPORTED) and not [w for w in wrong if not w.startswith("unsupported")]:
        return after.but(steps=before.steps)
    if after.state in (DIFFERS, OK):
        held = f"asked for {before.wanted}, the host holds {after.now}" + (
            f", {after.boot} after a reboot" if after.boot else ""
        )
        return after.but(state=FAILED, steps=before.steps, reason="; ".join(wrong) or held)
    return after.but(steps=before.steps)


def _of(names: tuple[str, ...], errors: Mapping[str, str]) -> set[str]:
    return {errors[name] for name in names if name in errors}


def _view(host: Host, since: str = "") -> View:
    found = records.load(host)
    boot_id = host.value("/proc/sys/kernel/random/boot_id") or ""
    return View(host, machine.read(host), records.owned(found, since), records.refused(found, boot_id))


def as_dict(reading: Reading, host: Host, was: Reading | None = None) -> dict[str, Any]:
    """A reading as it travels. `was` is set where this run changed the knob: how it stood before."""
    told: dict[str, Any] = {
        "knob": reading.knob,
        "wanted": reading.wanted,
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
        told["was"] = {"now": was.now, "boot": was.boot}
    return told


def _records(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    found: list[Record] = records.load(host)
    kept = ("name", "action", "scope", "profile", "by", "at", "done", "to")
    return {"records": [{**{k: getattr(r, k) for k in kept}, "settings": len(r.entries)} for r in found]}


def _facts(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the machine is; with `subjects` "nccl" also all that a run of NCCL depends on."""
    told: dict[str, Any] = {"machine": machine.read(host).as_dict()}
    if request.get("subjects") == "nccl":
        from .facts.gather import gather  # not needed by other visits, which shall not pay for it

        told["facts"] = gather(host, request)
    return told


FOR_ANYBODY = ("facts",)  # what is not readable by this user is told as unread
ACTIONS = {"tune": _tune, "undo": _undo, "records": _records, "facts": _facts}
