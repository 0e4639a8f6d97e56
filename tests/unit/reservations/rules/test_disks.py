"""Disks: who may change which, what a disk in use forbids, and how disks and volumes are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.reservations.rules import disks
from gpuctl.reservations.rules.commands import Cancel, Command, Submit
from gpuctl.reservations.rules.disks import CloneDisk, CreateDisk, DeleteDisk, RenameDisk, Volume
from gpuctl.reservations.rules.model import Caller, DiskState
from gpuctl.reservations.rules.requests import Request
from tests.rig.reservations.books import BOB, ROOT, Desk, book


def desk_with(*names: str) -> Desk:
    """A site where ada has these disks, with volumes."""
    desk = Desk(book())
    for name in names:
        assert desk.send(CreateDisk(name)).accepted
        desk.decide(disks.report, f"ada/{name}", f"ada/{name}", "")
    return desk


def volumes(*ids: str) -> list[Volume]:
    return [Volume(one, one.partition("/")[0], f"disk-{one}", "1Gi") for one in ids]


def test_a_disk_is_made_step_by_step_and_says_what_it_waits_for() -> None:
    desk = Desk(book())
    assert desk.send(CreateDisk("data")).message == "disk data is being made"
    assert desk.book.disks["ada/data"].state is DiskState.MAKING
    for _ in range(2):  # the second one tells nothing new
        desk.decide(disks.report, "ada/data", "ada/data", "the quota is full")
    assert desk.book.disks["ada/data"].reason == "the quota is full"
    desk.decide(disks.report, "ada/data", "ada/data", "")
    assert (desk.book.disks["ada/data"].state, desk.book.disks["ada/data"].reason) == (DiskState.READY, "")
    assert desk.actions == ["create disk", "wait for disk", "finish disk"]


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (CreateDisk("data"), "you have a disk data already"),
        (CreateDisk("../etc"), "'etc' is not a valid name|belongs to"),
        (CreateDisk(""), "'' is not a valid name"),
        (CreateDisk("bob/data"), "it belongs to bob, and you are ada"),
        (DeleteDisk("none"), "you have no disk 'none'"),
        (RenameDisk("data", "other"), "you have a disk other already"),
        (RenameDisk("data", "a b"), "'a b' is not a valid name"),
        (CloneDisk("none", "copy"), "you have no disk 'none'"),
        (CloneDisk("data", "other"), "you have a disk other already"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(command: Command, wrong: str) -> None:
    desk = desk_with("data", "other")
    before = desk.book.disks
    answer = desk.send(command)
    assert not answer.accepted
    assert any(text in answer.message for text in wrong.split("|")), answer.message
    assert desk.book.disks == before
    assert desk.actions[-1].startswith("refuse ")


@pytest.mark.parametrize("caller", [BOB, ROOT])
def test_nobody_changes_the_disk_of_another_not_even_an_admin(caller: Caller) -> None:
    desk = desk_with("data")
    for command in (DeleteDisk("ada/data"), RenameDisk("ada/data", "mine"), CloneDisk("ada/data", "mine")):
        answer = desk.send(command, caller)
        assert "it belongs to ada, and you are" in answer.message
    assert desk.send(DeleteDisk("data"), BOB).message.endswith("you have no disk 'data'")
    assert desk.book.disks["ada/data"].state is DiskState.READY


@pytest.mark.parametrize("command", [DeleteDisk("data"), RenameDisk("data", "new"), CloneDisk("data", "copy")])
@pytest.mark.parametrize("active", [True, False])
def test_a_disk_in_use_or_promised_is_not_touched(command: Command, active: bool) -> None:
    desk = desk_with("data")
    id_ = desk.start(8, disk="data") if active else desk.reserve(8, disk="data")
    answer = desk.send(command)
    assert f"reservation {id_} {'has it' if active else 'waits for it'}" in answer.message
    desk.send(Cancel(id_))
    if active:
        assert not desk.send(command).accepted  # its session is ended first
        desk.clear(id_)
    assert desk.send(command).accepted


def test_a_renamed_disk_keeps_its_volume_and_its_earlier_name_is_free() -> None:
    desk = desk_with("data")
    assert desk.send(RenameDisk("data", "old")).message == "disk data is now old"
    assert desk.book.disks["ada/old"].volume_id == "ada/data"
    assert desk.send(CreateDisk("data")).accepted
    assert desk.book.disks["ada/data"].volume_id == "ada/data~2"
    assert {disk.volume_id for disk in desk.book.disks.values()} == {"ada/data", "ada/data~2"}
    desk.decide(disks.report, "ada/data", "ada/data~2", "")
    id_ = desk.start(1, disk="old")
    assert desk.book.disks["ada/old"].attached == id_


def test_a_deleted_disk_is_listed_until_its_volume_is_gone() -> None:
    desk = desk_with("data")
    assert desk.send(DeleteDisk("data")).accepted
    assert desk.send(DeleteDisk("data")).message == "disk data is being deleted already"
    assert "is being deleted" in desk.send(CreateDisk("data")).message
    refused = desk.send(_submit("data"))
    assert "the disk data is being deleted" in refused.message
    desk.decide(disks.report, "ada/data", "ada/data", "")
    assert "ada/data" not in desk.book.disks
    assert desk.send(CreateDisk("data")).accepted


def test_a_copy_holds_its_source_until_it_is_ready() -> None:
    desk = desk_with("data")
    assert desk.send(CloneDisk("data", "copy")).message == "disk copy is being copied from data"
    for command in (DeleteDisk("data"), RenameDisk("data", "new"), CloneDisk("data", "third")):
        assert "ada/copy is being copied from it" in desk.send(command).message
    source, copy = desk.reserve(1, disk="data"), desk.reserve(1, disk="copy")
    desk.plan()
    assert {desk[source].state, desk[copy].state} == {"queued"}
    desk.decide(disks.report, "ada/copy", "ada/copy", "")
    desk.plan()
    assert {desk[source].state, desk[copy].state} == {"preparing"}


def test_a_clone_is_refused_with_the_reason_of_the_storage_and_without_a_volume() -> None:
    desk = desk_with("data")
    desk.reserve(1, disk="fresh")
    desk.book = replace(desk.book, site=replace(desk.book.site, no_copies="the storage class nfs is not known to copy"))
    answer = desk.send(CloneDisk("data", "copy"))
    assert (answer.accepted, "the storage class nfs is not known to copy" in answer.message) == (False, True)


def test_a_site_without_disks_refuses_all_of_it_in_words() -> None:
    desk = Desk(book())
    desk.book = replace(desk.book, site=replace(desk.book.site, disks=False))
    for command in (CreateDisk("a"), CloneDisk("a", "b"), RenameDisk("a", "b"), DeleteDisk("a")):
        answer = desk.send(command)
        assert "sessions of this site have no disks" in answer.message
        assert answer.hint == "home folders on the hosts stay"


def test_a_second_delivery_deletes_nothing_that_was_made_since() -> None:
    desk = desk_with("data")
    first = desk.send(DeleteDisk("data"), key="once-once")
    desk.decide(disks.report, "ada/data", "ada/data", "")
    desk.send(CreateDisk("data"))
    assert desk.send(DeleteDisk("data"), key="once-once") == first
    assert desk.book.disks["ada/data"].state is DiskState.MAKING


def test_a_volume_that_disappears_is_lost_and_one_that_is_back_is_ready() -> None:
    desk = desk_with("data")
    desk.decide(disks.compare, volumes("ada/data"))
    desk.decide(disks.compare, [])
    assert str(desk.book.disks["ada/data"].state) == "lost"
    assert "does not exist any more" in desk.send(_submit("data")).message
    desk.decide(disks.compare, volumes("ada/data"))
    assert desk.book.disks["ada/data"].state is DiskState.READY
    assert desk.actions.count("lose disk") == 1


def test_a_disk_without_a_volume_is_not_lost_before_it_had_one() -> None:
    desk = Desk(book())
    desk.reserve(1, disk="data")
    desk.decide(disks.compare, [])
    assert (desk.book.disks["ada/data"].state, desk.book.disks["ada/data"].made) == (DiskState.READY, False)
    assert "no session has used it" in _message_of_a_clone_after_the_end(desk)


def test_a_volume_without_a_disk_gets_one_again() -> None:
    desk = desk_with("data")
    ending = replace(volumes("ada/gone")[0], ending=True)
    marked_by_hand = Volume("ada/x", "bob", "disk-x")
    desk.decide(disks.compare, [*volumes("ada/data", "bob/old", "bob/old~2"), ending, marked_by_hand])
    assert sorted(desk.book.disks) == ["ada/data", "bob/old", "bob/old-2"]
    assert desk.book.disks["bob/old-2"].volume_id == "bob/old~2"
    assert desk.send(DeleteDisk("old-2"), BOB).accepted


def test_a_report_about_an_earlier_disk_of_the_name_is_ignored() -> None:
    desk = desk_with("data")
    desk.send(RenameDisk("data", "old"))
    desk.send(CreateDisk("data"))
    desk.decide(disks.report, "ada/data", "ada/data", "")
    desk.decide(disks.report, "ada/none", "ada/none", "")
    assert desk.book.disks["ada/data"].state is DiskState.MAKING


def test_a_person_has_a_limited_number_of_disks() -> None:
    desk = desk_with(*(f"d{number}" for number in range(disks.MOST_DISKS)))
    assert "as many as are allowed" in desk.send(CreateDisk("more")).message
    assert "as many as are allowed" in desk.send(_submit("more")).message
    assert desk.send(CreateDisk("more"), BOB).accepted


def _submit(disk: str) -> Submit:
    return Submit(Request(1, disk=disk))


def _message_of_a_clone_after_the_end(desk: Desk) -> str:
    for id_ in list(desk.book.reservations):
        desk.send(Cancel(id_))
    return desk.send(CloneDisk("data", "copy")).message
