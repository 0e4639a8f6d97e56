"""Apply planned steps to a host: record first, then change, then read back."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from . import record as records
from .host import Host
from .kinds import KINDS
from .model import DIFFERS, Reading, Step, Unreadable, Unsupported
from .record import PACKAGES, Entry, Record
from .refresh import refresh
from .remembered import Remembered
from .resources import file_of, line, make, phase, refresh_after, unit
from .resources.folder import PRESENT
from .undo import UNREADABLE, undo_error

# A governor holds its processor's energy preference (EBUSY); leaving it restores an older one.
HOLDING = "value:/sys/devices/system/cpu/"
BUSY = os.strerror(errno.EBUSY)
PACKAGE, RESTART, FOLDER = "package:", "restart:", "folder:"
BOOT_STATES, SLURM = "boot states of units", "files of Slurm"
RELOADING = ("enabled", "disabled", "masked")
NOT_TRIED = "not tried, as the packages could not be changed"
UNITS = phase("unit:")  # phases before units are files, and systemd must have read those before a unit changes

Named = tuple[str, Step]  # a knob's name and one of its steps


class Run(NamedTuple):
    """Action, scope, profile and user of a run, for the record."""

    action: str  # tune or undo
    scope: str
    profile: str
    by: str
    to: str = ""


class Outcome(NamedTuple):
    """Name of the record, errors by setting, and why the record could not be completed ("" if it was).

    `changed`: the host as the record has it, with the files that were read back.
    """

    record: str
    errors: dict[str, str]
    unrecorded: str
    changed: Host


def converge(host: Host, run: Run, readings: Sequence[Reading]) -> Outcome:
    """Apply the steps of all readings that differ. OSError if the record cannot be written: nothing is changed then."""
    due = [reading for reading in readings if reading.state == DIFFERS]
    steps = _with_folders(host, [(reading.knob, step) for reading in due for step in reading.steps])
    earlier = records.load(host)
    _clear_after(host, earlier)
    record = Record(
        name=records.next_name(earlier),
        entries=records.entries_of(steps),
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        boot_id=(host.value("/proc/sys/kernel/random/boot_id") or ""),
        **run._asdict(),
    )
    records.save(host, record)
    if run.action == "undo":
        steps = [(knob, step) for knob, step in steps if _has_effect(step)]
    errors = _carry_out(host, steps, [name for reading in due for name in reading.refresh], undo=run.action == "undo")
    if run.action != "undo":
        errors.update(_prove(host, steps, errors))
        errors.update(_revive(host, steps, errors))
        errors.update(_abandon(host, steps, errors))
    changed = Remembered(host)
    back = [step for reading in due if reading.restores for step in reading.steps if step.setting not in errors]
    errors.update({step.setting: wrong for step in back if (wrong := undo_error(changed, step))})
    try:
        records.save(host, record._replace(done=True, entries=_finished(changed, record.entries, errors)))
        records.prune(host)
    except OSError as error:  # the disk has become full: undo can work with the incomplete record
        return Outcome(record.name, errors, error.strerror or str(error), changed)
    return Outcome(record.name, errors, "", changed)


def _with_folders(host: Host, steps: Sequence[Named]) -> list[Named]:
    """The steps, and those that create the folders of new files, so that undo removes them."""
    folders: dict[str, str] = {}
    for knob, step in steps:
        folder = os.path.dirname(file_of(step.setting)) if step.after is not None else ""
        while folder.strip("/") and not host.exists(folder):
            folders.setdefault(folder, knob)
            folder = os.path.dirname(folder)
    return [*((knob, Step(f"folder:{path}", None, PRESENT)) for path, knob in sorted(folders.items())), *steps]


def _clear_after(host: Host, earlier: Sequence[Record]) -> None:
    """Remove temporary files that a killed run may have left beside the files it was replacing."""
    for entry in (entry for record in earlier if not record.done for entry in record.entries):
        kind, _, place = entry.setting.partition(":")
        if kind in ("file", "line", "comment", "kubelet", "slurm"):
            host.clear(place.partition(":")[0])


def _carry_out(host: Host, steps: Sequence[Named], extra: Sequence[str], undo: bool) -> dict[str, str]:
    """Order: files, boot states of units, refresh, units, values; the reverse for undo. Restarts come last."""
    errors, steps = ({}, steps) if undo else _install(host, steps)
    restarts = [(knob, step) for knob, step in steps if step.setting.startswith(RESTART)]
    emptied = [step for _, step in steps if step.setting.startswith(FOLDER) and step.after is None]
    others = [step for _, step in steps if not step.setting.startswith(RESTART) and step not in emptied]
    ordered = sorted(others, key=lambda s: (phase(s.setting), _own_file(s)), reverse=undo)
    names = [*extra, *filter(None, (refresh_after(step.setting) for step in ordered))]
    first = ordered if undo else [s for s in ordered if phase(s.setting) < UNITS or _reloads(s)]
    errors.update(_do_around_packages(host, first, {step.setting: knob for knob, step in steps}))
    if not undo and any(_reloads(step) and step.setting not in errors for step in first):
        names = [name for name in names if name != "systemd"]
    for name, wrong in refresh(host, names).items():
        errors.update({s.setting: wrong for s in ordered if refresh_after(s.setting) == name} or {name: wrong})
    spoilt = _knobs_without_packages(steps, errors)
    later = [(knob, step) for knob, step in steps if step in ordered and step not in first]
    skipped = {step.setting: NOT_TRIED for knob, step in later if knob in spoilt}
    units = {step for _, step in later if step.setting not in skipped}
    errors.update({**skipped, **_do(host, [step for step in ordered if step in units])})
    # A service reads its files when it starts: restart last, and only if all its files are right.
    spoilt = {knob for knob, step in steps if step.setting in errors}
    errors.update(_do(host, [step for knob, step in restarts if knob not in spoilt]))
    errors.update(_do(host, sorted(emptied, reverse=True)))  # inner folders first
    return errors


def _do_around_packages(host: Host, steps: Sequence[Step], knobs: Mapping[str, str]) -> dict[str, str]:
    """Apply steps in order, and leave out what follows a failure of a knob that has packages in the transaction.

    Packages need their repository, and what is written for packages is of no use without them. `knobs`: by setting.
    """
    with_packages = {knobs[step.setting] for step in steps if step.setting.startswith(PACKAGES)}
    errors: dict[str, str] = {}
    for _, group in groupby(steps, key=_side_of_packages):
        together = list(group)
        # One transaction is for all knobs: without a repository, none of them gets its packages.
        is_spoilt = any(knobs.get(setting) in with_packages for setting in errors)
        skipped = [step for step in together if is_spoilt and knobs[step.setting] in with_packages]
        errors.update({step.setting: NOT_TRIED for step in skipped})
        errors.update(_do(host, [step for step in together if step not in skipped]))
    return errors


def _side_of_packages(step: Step) -> int:
    """-1, 0 or 1: before, in or after the transaction."""
    first, last = (phase(kind) for kind in PACKAGES)
    return (phase(step.setting) > last) - (phase(step.setting) < first)


def _knobs_without_packages(steps: Sequence[Named], errors: Mapping[str, str]) -> set[str]:
    """Knobs whose packages are not as they should be."""
    return {
        knob for knob, step in steps if step.setting.startswith((*PACKAGES, "repository:")) and step.setting in errors
    }


def _abandon(host: Host, steps: Sequence[Named], errors: Mapping[str, str]) -> dict[str, str]:
    """Restore the files of knobs whose packages could not be changed, and were put back."""
    if not errors:
        return {}
    from .resources import deb

    failed = _knobs_without_packages(steps, errors) | _knobs_without_efa(steps, errors)
    if any(deb.UNREPAIRED in text for setting, text in errors.items() if setting.startswith(PACKAGES)):
        return {}
    files = [
        (knob, step)
        for knob, step in steps
        if knob in failed and step.setting.startswith(("file:", "repository:", FOLDER)) and step.setting not in errors
    ]
    return _take_back(host, files, "the packages could not be changed") if files else {}


def _knobs_without_efa(steps: Sequence[Named], errors: Mapping[str, str]) -> set[str]:
    """Knobs whose installer could not be used, so that nothing of it is on the host."""
    from .resources import efa

    return {knob for knob, step in steps if efa.AS_BEFORE in errors.get(step.setting, "")}


def _has_effect(step: Step) -> bool:
    """False for a step that only closes the record of an interrupted undo, and for a module, which goes with its
    package.
    """
    if step.setting.startswith("module:"):
        return False
    return step.before != step.after or bool(refresh_after(step.setting))


def _reloads(step: Step) -> bool:
    """True if the step makes systemd reload all unit files; that is slow, so it is done once."""
    return step.setting.startswith("unit:") and step.setting.endswith(":boot") and step.after in RELOADING


def _install(host: Host, steps: Sequence[Named]) -> tuple[dict[str, str], list[Named]]:
    """Install packages. Return the errors, and the other steps of the knobs whose packages are installed."""
    packages = list(dict.fromkeys(step for _, step in steps if step.setting.startswith(PACKAGE)))
    errors = _do(host, packages)
    lacking = {knob for knob, step in steps if step.setting in errors}
    return errors, [(knob, step) for knob, step in steps if knob not in lacking and step not in packages]


def _do(host: Host, steps: Sequence[Step]) -> dict[str, str]:
    """Apply the steps, and retry those that another file of the same processor blocked or reverted."""
    errors = _do_once(host, steps)
    again = [step for step in steps if step.setting.startswith(HOLDING) and _was_held(host, step, errors)]
    for step in again:
        errors.pop(step.setting, None)
    return {**errors, **_do_once(host, again)}


def _was_held(host: Host, step: Step, errors: dict[str, str]) -> bool:
    if step.setting in errors:
        return errors[step.setting] == BUSY
    try:
        return make(step.setting).read(host) not in (step.after, None)
    except OSError:
        return False


def _do_once(host: Host, steps: Sequence[Step]) -> dict[str, str]:
    """Apply the steps in order; a failure does not stop the others.

    All lines of one file, all files of Slurm, and the boot states of units, are changed together.
    """
    errors = {}
    for place, group in groupby(steps, key=_changed_together):
        together = list(group)
        for some in [together] if place else [[step] for step in together]:
            try:
                errors.update(_write(host, place, some))
            except Unsupported as reason:
                errors.update({step.setting: f"unsupported: {reason}" for step in some})
            except OSError as error:
                errors.update({step.setting: error.strerror or str(error) for step in some})
            except (RuntimeError, ValueError, Unreadable) as error:
                errors.update({step.setting: str(error) for step in some})
    return errors


def _write(host: Host, place: str, steps: Sequence[Step]) -> dict[str, str]:
    """Apply steps that change together, or one alone; return errors by setting, or raise the only one."""
    if place == BOOT_STATES:
        return _write_boot_states(host, steps)
    if place in PACKAGES:
        return _write_packages(host, place, steps)
    if place == SLURM:
        from .resources import slurm

        slurm.write_together(host, {step.setting: step.after for step in steps})
        return {}
    if place:
        texts = {s.setting.partition(f"{place}:")[2]: s.after for s in steps}
        if steps[0].setting.startswith("kubelet:"):
            from .resources import kubelet

            kubelet.write_together(host, place, texts)
        else:
            line.write_lines(host, place, texts)
    else:
        make(steps[0].setting).write(host, steps[0].after)
    return {}


def _changed_together(step: Step) -> str:
    """A name for the place that steps change in one go; empty for a step of its own."""
    if step.setting.startswith(PACKAGES):
        return f"{step.setting.partition(':')[0]}:"
    if step.setting.startswith("slurm:"):
        return SLURM
    return BOOT_STATES if _reloads(step) else _own_file(step)


def _write_boot_states(host: Host, steps: Sequence[Step]) -> dict[str, str]:
    by_unit = {step.setting.partition(":")[2].rpartition(":")[0]: step for step in steps}
    wrong = unit.write_boot_states(host, {name: (step.before, step.after) for name, step in by_unit.items()})
    return {by_unit[name].setting: text for name, text in wrong.items()}


def _write_packages(host: Host, kind: str, steps: Sequence[Step]) -> dict[str, str]:
    names = {step.setting.partition(":")[2]: step for step in steps}
    versions = {name: step.after for name, step in names.items()}
    if kind == "deb:":
        from .resources.deb import write_debs

        wrong = write_debs(host, versions)
    else:
        from .resources.rpm import write_rpms

        wrong = write_rpms(host, versions)
    return {names[name].setting: text for name, text in wrong.items()}


def _own_file(step: Step) -> str:
    kind, _, rest = step.setting.partition(":")
    return rest.partition(":")[0] if kind in ("line", "kubelet") else ""


def _prove(host: Host, steps: Sequence[Named], errors: dict[str, str]) -> dict[str, str]:
    """Run each kind's safety check; revert the steps of a kind that fails it."""
    failed: dict[str, str] = {}
    for kind in dict.fromkeys(knob.partition(".")[0] for knob, _ in steps):
        prove = getattr(KINDS[kind], "prove", None)
        mine = [(k, s) for k, s in steps if k.partition(".")[0] == kind and s.setting not in errors]
        wrong = prove(host) if prove and mine else ""
        if wrong:
            failed.update(_take_back(host, mine, wrong))
            if prove and prove(host):
                failed = {
                    setting: f"{text}; it fails without it too: fix that first" for setting, text in failed.items()
                }
    return failed


def _revive(host: Host, steps: Sequence[Named], errors: dict[str, str]) -> dict[str, str]:
    """Restore the old files of a service that does not run with its new ones, and restart it.

    The package stays, as other services may use it by now.
    """
    failed: dict[str, str] = {}
    for knob, restart in steps:
        wrong = errors.get(restart.setting, "")
        if restart.setting.startswith(RESTART) and wrong and not wrong.startswith("unsupported"):
            files = [(k, step) for k, step in steps if k == knob and step.setting.startswith("file:")]
            failed.update(_take_back(host, [*files, (knob, restart)], wrong))
    return failed


def _take_back(host: Host, steps: Sequence[Named], wrong: str) -> dict[str, str]:
    back = [(knob, Step(step.setting, step.after, step.before)) for knob, step in steps]
    still = _carry_out(host, back, [], undo=True)
    return {step.setting: f"reverted: {wrong}; {still.get(step.setting, '')}".rstrip("; ") for _, step in steps}


def _finished(host: Host, entries: Sequence[Entry], errors: dict[str, str]) -> tuple[Entry, ...]:
    """The entries with the values that the host has now, which may be less than requested."""
    units = _units(host, [entry.setting for entry in entries])
    return tuple(entry._replace(got=_got(host, entry, units), error=errors.get(entry.setting, "")) for entry in entries)


def _units(host: Host, settings: Sequence[str]) -> dict[str, str]:
    """The states of units, by one query; empty if they cannot be read together."""
    places = [setting.partition(":")[2] for setting in settings if setting.startswith("unit:")]
    try:
        return {f"unit:{place}": text for place, text in unit.read_all(host, places).items()} if places else {}
    except UNREADABLE:
        return {}


def _got(host: Host, entry: Entry, known: Mapping[str, str]) -> str | None:
    try:
        text = known[entry.setting] if entry.setting in known else make(entry.setting).read(host)
    except UNREADABLE:
        return entry.after
    return records.digest(text)
