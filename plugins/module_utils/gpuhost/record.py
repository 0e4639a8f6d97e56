"""What gpuctl changed on this host, and what was there before: /var/lib/gpuctl/records/NNNN.json, one a run.

A record is written whole, and synced with its folder, before the first change of its run; so whenever a run is cut
off, what it may have touched is known. What a setting was at first is the `before` of its oldest record since it was
last put back: a later run never overwrites it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .host import Host
from .model import Step

STATE = "/var/lib/gpuctl"
FOLDER = f"{STATE}/records"
FORM = 1


class Entry(NamedTuple):
    """One step as recorded: `got` is what the host held afterwards, `error` why it could not be done."""

    knob: str
    setting: str
    before: str | None
    after: str | None
    got: str | None = None
    error: str = ""


class Record(NamedTuple):
    """One run on this host. `undo` runs put settings back; an unfinished one (`done` false) was cut off."""

    name: str
    action: str
    scope: str
    profile: str
    by: str
    at: str
    boot_id: str
    entries: tuple[Entry, ...]
    done: bool = False
    to: str = ""  # of an undo run: the record it goes back to; empty: to what was there before gpuctl


class UnreadableRecord(ValueError):
    """A record that cannot be understood; the text names its file."""


class Owned(NamedTuple):
    """A setting that is ours now: what it was before us, and the texts that count as ours.

    `unsure`: an undo has put it back, or was about to, and was cut off or failed before the system took note.
    """

    knob: str
    scope: str
    setting: str
    original: str | None
    ours: tuple[str | None, ...]
    unsure: bool = False

    def holds(self, now: str | None) -> bool:
        """Whether the host still holds what we put there."""
        return digest(now) in self.ours or now in self.ours


def digest(text: str | None) -> str | None:
    """A long text (a file we wrote) is kept as its hash: to tell ours from another's needs no more."""
    if text is None or len(text) <= 200:
        return text
    import hashlib  # takes longer to load than all the rest of a visit that changes nothing

    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def load(host: Host) -> list[Record]:
    """All records, oldest first; `UnreadableRecord` with the path where one cannot be understood."""
    found = []
    for name in host.listdir(FOLDER):
        if not name.endswith(".json") or name.startswith("."):
            continue
        path = f"{FOLDER}/{name}"
        try:
            data = json.loads(host.read(path))
            if data.pop("form") != FORM:
                raise ValueError("written by another version of gpuctl")
            entries = tuple(Entry(**entry) for entry in data.pop("entries"))
            found.append(Record(entries=entries, **data))
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableRecord(f"{path} cannot be used: {error}") from error
    return found


def save(host: Host, record: Record) -> None:
    """Write a record, whole and synced, into a folder that is root's alone."""
    host.make_private_folder(STATE)
    host.make_private_folder(FOLDER)
    data: dict[str, Any] = {"form": FORM, **record._asdict()}
    data["entries"] = [entry._asdict() for entry in record.entries]
    host.replace(f"{FOLDER}/{record.name}.json", json.dumps(data, indent=1) + "\n", mode=0o600)


def can_be_kept(host: Host) -> bool:
    """Whether a record can be written; a disk may have been mounted read-only, by design or after an error."""
    folder = FOLDER
    while folder != "/" and not host.exists(folder):
        folder = os.path.dirname(folder)
    return os.access(host.real(folder), os.W_OK)


def next_name(records: list[Record]) -> str:
    """Numbered, so that the order is plain to see."""
    return f"{int(records[-1].name) + 1 if records else 1:06d}"


def entries_of(steps: Iterable[tuple[str, Step]]) -> tuple[Entry, ...]:
    """Steps, each with its knob's name, as they are written down before anything is done."""
    return tuple(Entry(knob, s.setting, s.before, digest(s.after)) for knob, s in steps)


def owned(records: Sequence[Record], after: str = "") -> dict[str, Owned]:
    """What is ours now, by setting. With `after`, only what the runs later than that record changed."""
    found: dict[str, Owned] = {}
    for record in records:
        if record.name <= after:
            continue
        if record.action == "undo":
            _give_back(found, record, owned([r for r in records if after < r.name <= record.to]))
            continue
        for entry in record.entries:
            # What failed may have taken effect all the same: a file is written, and its refresh fails.
            if not entry.error or entry.got != digest(entry.before):
                _take(found, record, entry)
    return found


def _give_back(found: dict[str, Owned], undo: Record, left: dict[str, Owned]) -> None:
    """What an undo has put back is ours only as far as it went back to a record; what it tried to is not sure."""
    for entry in undo.entries:
        earlier = found.pop(entry.setting, None)
        if undo.done and not entry.error:
            found.update({entry.setting: left[entry.setting]} if entry.setting in left else {})
        elif earlier:
            held = (entry.got,) if undo.done else ()  # as far as it went: the next undo goes on from there
            found[entry.setting] = earlier._replace(unsure=True, ours=(*earlier.ours, *held))


def _take(found: dict[str, Owned], record: Record, entry: Entry) -> None:
    earlier = found.get(entry.setting)
    original = earlier.original if earlier else entry.before
    if record.done and earlier and entry.got == digest(original):
        del found[entry.setting]  # as it was before us: it is nobody's of ours any more
        return
    # Of a run that was cut off nobody knows whether it came to this setting: it may hold what we put there before.
    other = (entry.got,) if record.done else earlier.ours if earlier else ()
    ours = tuple(dict.fromkeys((entry.after, *other)))
    found[entry.setting] = Owned(entry.knob, record.scope, entry.setting, original, ours)


def refused(records: Iterable[Record], boot_id: str) -> frozenset[str]:
    """Settings that the kernel would not change, as learned since this boot."""
    return frozenset(
        e.setting for r in records if r.boot_id == boot_id for e in r.entries if e.error.startswith("unsupported")
    )
