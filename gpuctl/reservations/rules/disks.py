"""Commands about disks, reports about their volumes, and repairs of both; pure like all rules.

Each disk has a volume, which stays the same when the disk is renamed. Work on a volume follows from the disk's state,
so that a lost or interrupted step is done again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Book, Caller, Disk, DiskState

WORK = (DiskState.MAKING, DiskState.COPYING, DiskState.DELETING)  # states in which a volume has to change
MOST_DISKS = 50  # of a person
LIST = "`gpuctl reservations disk list` shows yours"
BETWEEN = "~"  # a name of a disk and a number, for a volume; no name has it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class CreateDisk:
    disk: str


@dataclass(frozen=True)
class CloneDisk:
    """`disk`: the source. `copy`: name of the new disk."""

    disk: str
    copy: str


@dataclass(frozen=True)
class RenameDisk:
    disk: str
    name: str


@dataclass(frozen=True)
class DeleteDisk:
    disk: str


DiskCommand: TypeAlias = CreateDisk | CloneDisk | RenameDisk | DeleteDisk
DISK_COMMANDS = (CreateDisk, CloneDisk, RenameDisk, DeleteDisk)


@dataclass(frozen=True)
class Volume:
    """A volume that exists, made for a disk of `person`. `id`: as `Disk.volume_id`. `size`: as the back end prints it.

    `claim`: its name in the cluster. `ending`: it is being deleted.
    """

    id: str
    person: str
    claim: str
    size: str = ""
    ending: bool = False


def create(draft: Draft, command: CreateDisk, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"create the disk {command.disk}"
    disk = _new(draft, caller, command.disk, doing)
    draft.put(replace(disk, state=DiskState.MAKING))
    draft.note("create disk", disk.name, f"by {caller.person}")
    return "", f"disk {command.disk} is being made"


def clone(draft: Draft, command: CloneDisk, caller: Caller, _: str) -> tuple[str, str]:
    """The copy is taken of a disk that nobody uses: one that is written to at the same time would be torn."""
    doing = f"clone the disk {command.disk}"
    source = _unused(draft.book, caller, command.disk, doing, "a copy of it would be torn")
    if draft.book.site.no_copies:
        raise InvalidInput(doing, draft.book.site.no_copies, "make a new disk, and copy the files in a session")
    if not source.made:
        raise InvalidInput(doing, "it has no volume yet: no session has used it", "create a new disk instead")
    disk = _new(draft, caller, command.copy, doing)
    draft.put(replace(disk, state=DiskState.COPYING, source=source.volume_id))
    draft.note("clone disk", disk.name, f"from {source.name} by {caller.person}")
    return "", f"disk {command.copy} is being copied from {command.disk}"


def rename(draft: Draft, command: RenameDisk, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"rename the disk {command.disk}"
    disk = _unused(draft.book, caller, command.disk, doing, "its session would lose it")
    new = _new(draft, caller, command.name, doing)
    draft.put(replace(disk, name=new.name, volume=disk.volume_id, version=0))
    draft.put(replace(disk, state=DiskState.DELETED))
    draft.note("rename disk", new.name, f"by {caller.person}", disk.name, new.name)
    draft.note("rename disk", disk.name, f"by {caller.person}", disk.name, new.name)
    return "", f"disk {command.disk} is now {command.name}"


def delete(draft: Draft, command: DeleteDisk, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"delete the disk {command.disk}"
    disk = find(draft.book, caller, command.disk, doing)
    if disk.state is DiskState.DELETING:
        return "", f"disk {command.disk} is being deleted already"
    _check_unused(draft.book, disk, doing, "its data would be gone")
    draft.put(replace(disk, state=DiskState.DELETING, reason=""))
    draft.note("delete disk", disk.name, f"by {caller.person}", str(disk.state), str(DiskState.DELETING))
    return "", f"disk {command.disk} is being deleted"


def full_name(caller: Caller, name: str, doing: str) -> str:
    """Name of a disk with its person; `InvalidInput` for one that nobody can have, or that is somebody else's."""
    person, slash, rest = name.rpartition("/")
    if slash and person != caller.person:
        raise InvalidInput(doing, f"it belongs to {person}, and you are {caller.person}", LIST)
    if not _NAME.fullmatch(rest):
        hint = "use up to 63 letters, digits, dots, dashes and underscores"
        raise InvalidInput(doing, f"{rest!r} is not a valid name of a disk", hint)
    return f"{caller.person}/{rest}"


def find(book: Book, caller: Caller, name: str, doing: str) -> Disk:
    """A disk of the caller; `InvalidInput` if there is none."""
    check_site(book, doing)
    disk = book.disks.get(full_name(caller, name, doing))
    if disk is None:
        raise InvalidInput(doing, f"you have no disk {name!r}", LIST)
    return disk


def holders(book: Book, disk: Disk) -> list[str]:
    """Live reservations that have the disk or are promised it, by id."""
    return sorted(row.id for row in book.reservations.values() if row.disk == disk.name)


def first_use(draft: Draft, caller: Caller, name: str, doing: str) -> str:
    """Full name of a disk that a request names; it is made if it does not exist."""
    full = full_name(caller, name, doing)
    disk = draft.book.disks.get(full)
    if disk is None:
        draft.put(_new(draft, caller, name, doing))
        draft.note("create disk", full, "first use")
    elif disk.state in (DiskState.DELETING, DiskState.LOST):
        wrong = f"the disk {name} is {disk.state}" + (f": {disk.reason}" if disk.reason else "")
        raise InvalidInput(doing, wrong, "name another disk; " + LIST)
    return full


def check_site(book: Book, doing: str) -> None:
    """`InvalidInput` where sessions have no disks."""
    if not book.site.disks:
        raise InvalidInput(doing, "sessions of this site have no disks", "home folders on the hosts stay")


def _new(draft: Draft, caller: Caller, name: str, doing: str) -> Disk:
    """A disk that does not exist yet, with a volume that no other disk has."""
    book = draft.book
    check_site(book, doing)
    full = full_name(caller, name, doing)
    if full in book.disks:
        raise InvalidInput(doing, f"you have a disk {name} already: it is {book.disks[full].state}", LIST)
    if sum(disk.person == caller.person for disk in book.disks.values()) >= MOST_DISKS:
        raise InvalidInput(doing, f"you have {MOST_DISKS} disks, as many as are allowed", "delete one")
    volumes = {disk.volume_id for disk in book.disks.values()}
    ids = (full if number == 1 else f"{full}{BETWEEN}{number}" for number in itertools.count(1))
    volume = next(one for one in ids if one not in volumes)  # a disk that was renamed has kept its volume
    return Disk(full, caller.person, volume="" if volume == full else volume)


def _unused(book: Book, caller: Caller, name: str, doing: str, harm: str) -> Disk:
    disk = find(book, caller, name, doing)
    if disk.state is not DiskState.READY:
        raise InvalidInput(doing, f"it is {disk.state}", "wait until it is ready: " + LIST)
    _check_unused(book, disk, doing, harm)
    return disk


def _check_unused(book: Book, disk: Disk, doing: str, harm: str) -> None:
    if ids := holders(book, disk):
        verb = "has it" if disk.attached else "waits for it"
        wrong = f"reservation {named(ids)} {verb}, and {harm}"
        raise InvalidInput(doing, wrong, "wait until the reservation is over, or cancel it")
    copies = [one.name for one in book.disks.values() if one.source == disk.volume_id]
    if copies:
        raise InvalidInput(doing, f"{named(copies)} is being copied from it", "wait until the copy is ready")


# ---- volumes --------------------------------------------------------------------------------------------------------


def report(draft: Draft, name: str, volume: str, waits: str) -> None:
    """The result of a step on a volume: `waits` says what it waits for or why it failed; "" if it is done."""
    disk = draft.book.disks.get(name)
    if disk is None or disk.volume_id != volume or disk.state not in WORK:
        return
    if waits:
        if disk.reason != waits:
            draft.put(replace(disk, reason=waits))
            draft.note("wait for disk", name, waits)
        return
    after = DiskState.DELETED if disk.state is DiskState.DELETING else DiskState.READY
    draft.put(replace(disk, state=after, reason="", source="", made=True))
    draft.note(
        "finish disk",
        name,
        "its volume is deleted" if after is DiskState.DELETED else "its volume is made",
        str(disk.state),
        str(after),
    )


def compare(draft: Draft, volumes: Collection[Volume]) -> None:
    """Compare disks with the volumes that exist: one without a disk gets one again, a disk without its own is lost."""
    present = {volume.id: volume for volume in volumes}
    for disk in list(draft.book.disks.values()):
        volume = present.pop(disk.volume_id, None)
        exists = volume is not None and not volume.ending
        if disk.state is DiskState.READY and exists and not disk.made:
            draft.put(replace(disk, made=True))
        elif disk.state is DiskState.READY and not exists and disk.made:
            reason = "its volume does not exist any more, and nobody deleted the disk here"
            draft.put(replace(disk, state=DiskState.LOST, reason=reason))
            draft.note("lose disk", disk.name, reason, str(disk.state), str(DiskState.LOST))
        elif disk.state is DiskState.LOST and exists:
            draft.put(replace(disk, state=DiskState.READY, reason=""))
            draft.note("repair disk", disk.name, "its volume exists again", str(disk.state), str(DiskState.READY))
    for volume in present.values():
        if not volume.ending and volume.id.startswith(f"{volume.person}/"):
            name = _free_name(draft.book, volume.id.replace(BETWEEN, "-"))
            draft.put(Disk(name, volume.person, volume="" if name == volume.id else volume.id, made=True))
            draft.note("repair disk", name, "its volume exists, and the database did not have it")


def _free_name(book: Book, name: str) -> str:
    names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return next(one for one in names if one not in book.disks)
