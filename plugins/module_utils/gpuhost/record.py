"""Records of what gpuctl changed on this host and the values before: /var/lib/gpuctl/records/NNNNNN.json, one per run.

A record is written and synced before the first change of its run, so the changes of an interrupted run are known.
The original value of a setting is the `before` of its oldest record since it was last undone; no later run
overwrites it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .host import Host
from .model import Step

STATE = "/var/lib/gpuctl"
FOLDER = f"{STATE}/records"
FORM = 1
# Kinds of settings that programs and the kernel change by themselves, unlike files.
PACKAGES = ("deb:", "rpm:")
RUNTIME = ("value:", "either:", "irq:", "swap:", "unit:", "gpu:", "mps:")
# Settings of GPUs, of the kubelet and of Slurm belong to variables of the inventory, whichever profile is tuned, too.
GPU_SCOPE = "gpu_settings"
OF_GPU_SCOPE = ("gpu.", "program.gpuctl-gpu")
# Kind of a knob that a variable of its own sets -> that variable.
VARIABLES = {"kubelet": "kubelet_resources", "slurm": "slurm_gres"}
# What resources/efa.py adds to the text of an installation that is not whole.
HALF_DONE = re.compile("half-installed|without-module")
KEPT = 50  # records that are kept in any case


class Entry(NamedTuple):
    """One step as recorded: `got` is the host's value afterwards, `error` why the step failed."""

    knob: str
    setting: str
    before: str | None
    after: str | None
    got: str | None = None
    error: str = ""


class Record(NamedTuple):
    """One run on this host, of the action "tune" or "undo"; `done` is false if it was interrupted."""

    name: str
    action: str
    scope: str
    profile: str
    by: str
    at: str
    boot_id: str
    entries: tuple[Entry, ...]
    done: bool = False
    to: str = ""  # of an undo: the record it goes back to; empty for the state before gpuctl


class UnreadableRecord(ValueError):
    """A record that cannot be read; the message names its file."""


class Owned(NamedTuple):
    """A setting that gpuctl owns: its original value, and the texts that count as ours.

    `unsure`: an undo of it was interrupted, or failed before the system had read the restored file. `interrupted`: the
    former. Its text may then be anything: what that undo started, such as irqbalance, may have changed it again.
    """

    knob: str
    scope: str
    setting: str
    original: str | None
    ours: tuple[str | None, ...]
    unsure: bool = False
    interrupted: bool = False

    def holds(self, now: str | None) -> bool:
        """True if the current value is still ours."""
        if self.interrupted and self.setting.startswith(RUNTIME):
            return True
        if self.setting.startswith(PACKAGES) and now and now.split()[1:2] not in (["auto"], ["manual"], []):
            return True  # left half done by dpkg or rpm
        if self.setting.startswith("efa:") and now and HALF_DONE.search(now):
            return True  # left so by its installer, or by a change of the kernel
        if self.setting == "nccl_tests:build" and now and now.endswith(" damaged"):
            return True  # the folder is gpuctl's alone
        if self.setting.startswith(PACKAGES) and self.original is None and now:
            # It came as a dependency, and somebody has updated it since: it still goes with what needed it.
            return now.split()[1:] in [(text or "").split()[1:] for text in self.ours if text]
        return digest(now) in self.ours or now in self.ours


def digest(text: str | None) -> str | None:
    """A short text as it is, a long one (a file's content) as its hash."""
    if text is None or len(text) <= 200:
        return text
    import hashlib  # slow to load, and most visits change nothing

    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def load(host: Host) -> list[Record]:
    """All records, oldest first; `UnreadableRecord` if one cannot be parsed."""
    records = []
    for name in host.listdir(FOLDER):
        if not name.endswith(".json") or name.startswith("."):
            continue
        path = f"{FOLDER}/{name}"
        try:
            data = json.loads(host.read(path))
            if data.pop("form") != FORM:
                raise ValueError("written by another version of gpuctl")
            entries = tuple(Entry(**entry) for entry in data.pop("entries"))
            records.append(Record(entries=entries, **data))
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableRecord(f"{path} cannot be used: {error}") from error
    return records


def save(host: Host, record: Record) -> None:
    """Write a record atomically, in a folder that only root can enter."""
    host.make_private_folder(STATE)
    host.make_private_folder(FOLDER)
    data: dict[str, Any] = {"form": FORM, **record._asdict()}
    data["entries"] = [entry._asdict() for entry in record.entries]
    host.replace(f"{FOLDER}/{record.name}.json", json.dumps(data, indent=1) + "\n", mode=0o600)


def prune(host: Host) -> None:
    """Remove records that no undo needs; the newest KEPT stay, and as many of the others as an undo may need."""
    records = load(host)
    for record in _spare(records):
        host.remove(f"{FOLDER}/{record.name}.json")


def _spare(records: Sequence[Record]) -> list[Record]:
    """Old records without effect on any undo: all their settings were given back, or a later run repeats them.

    A repetition is typical of a service that resets a value on every boot: each run then finds and sets the same.
    """
    old = records[:-KEPT]
    current = owned(records)
    done = next((count for count in range(len(old), 0, -1) if owned(records[count:]) == current), 0)
    targets = max((record.to for record in records), default="")  # an undo to a record reads all until that one
    undone, others = old[:done], enumerate(old[done:], done + 1)
    return [*undone, *(r for later, r in others if r.name > targets and _is_repeated(r, records[later:]))]


def _is_repeated(record: Record, later: Sequence[Record]) -> bool:
    """True if the next record of each of its settings is a run that changed it from and to the same values."""
    if record.action != "tune" or not record.done:
        return False
    left = {entry.setting: entry for entry in record.entries}
    for successor in later:
        for entry in successor.entries:
            mine = left.pop(entry.setting, None)
            is_run = (successor.action, successor.scope, successor.done) == ("tune", record.scope, True)
            repeats = entry == mine and not entry.error and is_run
            if mine is not None and not repeats:
                return False
        if not left:
            return True
    return False


def can_be_kept(host: Host) -> bool:
    """True if a record can be written; a disk may be read-only, by design or after an error."""
    return host.can_write(FOLDER)


def next_name(records: list[Record]) -> str:
    """The next number, six digits, so that names sort in order."""
    return f"{int(records[-1].name) + 1 if records else 1:06d}"


def entries_of(steps: Iterable[tuple[str, Step]]) -> tuple[Entry, ...]:
    """Entries for (knob, step) pairs, before the steps are applied."""
    return tuple(Entry(knob, s.setting, s.before, digest(s.after)) for knob, s in steps)


def owned(records: Sequence[Record], after: str = "") -> dict[str, Owned]:
    """Settings that gpuctl owns, by setting. With `after`, only those of runs later than that record."""
    settings: dict[str, Owned] = {}
    for record in records:
        if record.name <= after:
            continue
        if record.action == "undo":
            _give_back(settings, record, owned([r for r in records if after < r.name <= record.to]))
            continue
        for entry in record.entries:
            # A failed step may have taken effect: the file is written, but its refresh failed.
            if not entry.error or entry.got != digest(entry.before):
                _take(settings, record, entry)
    return settings


def _give_back(settings: dict[str, Owned], undo: Record, left: dict[str, Owned]) -> None:
    """Remove settings that an undo restored, unless it went back to a record; a failed entry becomes `unsure`."""
    for entry in undo.entries:
        earlier = settings.pop(entry.setting, None)
        if undo.done and not entry.error:
            settings.update({entry.setting: left[entry.setting]} if entry.setting in left else {})
        elif earlier:
            left_at = (entry.got,) if undo.done else ()  # the next undo continues from it
            ours = (*earlier.ours, *left_at)
            settings[entry.setting] = earlier._replace(unsure=True, interrupted=not undo.done, ours=ours)


def scope_of(knob: str, scope: str) -> str:
    """The scope that a knob belongs to, if a run of `scope` set it."""
    if knob.startswith(OF_GPU_SCOPE):
        return GPU_SCOPE
    return VARIABLES.get(knob.partition(".")[0], scope)


def _take(settings: dict[str, Owned], record: Record, entry: Entry) -> None:
    earlier = settings.get(entry.setting)
    original = earlier.original if earlier else entry.before
    if record.done and earlier and entry.got == digest(original):
        del settings[entry.setting]  # back to its original value: no longer ours
        return
    # An interrupted run may not have reached this setting: it may hold our earlier value.
    other = (entry.got,) if record.done else (*_between(entry), *(earlier.ours if earlier else ()))
    ours = tuple(dict.fromkeys((entry.after, *other)))
    settings[entry.setting] = Owned(entry.knob, scope_of(entry.knob, record.scope), entry.setting, original, ours)


def _between(entry: Entry) -> tuple[str, ...]:
    """Texts of a package between its installation and its marks, see resources/deb.py and rpm.py."""
    words = (entry.after or "").split()
    if not entry.setting.startswith(PACKAGES) or len(words) == 1 or not words:
        return ()
    return tuple(f"{words[0]} {mark}{hold}" for mark in ("manual", "auto") for hold in ("", " hold"))


def refused(records: Iterable[Record], boot_id: str) -> frozenset[str]:
    """Settings that the kernel has refused to change since this boot."""
    return frozenset(
        e.setting for r in records if r.boot_id == boot_id for e in r.entries if e.error.startswith("unsupported")
    )


def reverted_restarts(records: Iterable[Record], boot_id: str) -> dict[str, dict[str, str | None]]:
    """Restarts since this boot after which the service did not run: setting -> the files (setting -> text) it had.

    Texts are digests.
    """
    reverted: dict[str, dict[str, str | None]] = {}
    for record in (record for record in records if record.boot_id == boot_id and record.action == "tune"):
        for entry in (entry for entry in record.entries if entry.setting.startswith("restart:")):
            files = {e.setting: e.after for e in record.entries if e.knob == entry.knob}
            reverted.pop(entry.setting, None)
            if entry.error.startswith("reverted"):
                reverted[entry.setting] = {name: text for name, text in files.items() if name.startswith("file:")}
    return reverted
