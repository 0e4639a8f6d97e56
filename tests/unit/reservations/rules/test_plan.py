"""Who starts, who gets a promise, and what keeps it."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.reservations.rules import reports
from gpuctl.reservations.rules.commands import Cancel
from gpuctl.reservations.rules.model import HOUR, Caller, NodeState, Site, State, Usage
from gpuctl.reservations.rules.pool import longest_hold_s
from tests.rig.reservations.books import ADA, BOB, NOW, Desk, book


def test_a_request_that_fits_starts_at_once_on_the_fullest_node() -> None:
    desk = Desk(book())
    first, second = desk.start(4), desk.start(2)
    assert desk[first].state is desk[second].state is State.ACTIVE
    assert desk[first].slots[0].node == desk[second].slots[0].node == "gpu-1"
    assert desk[second].slots[0].gpus == (4, 5)


def test_the_first_that_does_not_fit_gets_a_promise_and_a_short_one_fills_the_gap() -> None:
    desk = Desk(book())
    desk.start(8, hours=4)
    large = desk.reserve(16, hours=2, caller=BOB)
    desk.plan()
    promised = desk[large].promised_at
    assert promised is not None
    assert promised > NOW + 4 * HOUR
    short, long = desk.reserve(8, hours=2), desk.reserve(8, hours=12)
    desk.plan()
    assert desk[short].state is State.PREPARING
    assert desk[long].state is State.QUEUED
    assert desk[large].promised_at == promised


def test_a_long_request_starts_on_nodes_that_the_promise_does_not_need() -> None:
    desk = Desk(book(nodes=3))
    desk.start(8, hours=1)
    desk.start(4, hours=10)
    large = desk.reserve(16, hours=1, caller=BOB)
    small = desk.reserve(4, hours=20)
    desk.plan()
    assert desk[large].state is State.QUEUED
    assert desk[small].state is State.PREPARING
    assert desk[small].slots[0].node == "gpu-2"


def test_who_used_less_goes_first_and_use_decays() -> None:
    desk = Desk(book(nodes=1))
    desk.book = replace(desk.book, usage={"person:ada": Usage("person:ada", 1e6, NOW)})
    running = desk.start(8, caller=Caller("cy"))
    desk.reserve(8, caller=ADA)
    light = desk.reserve(8, caller=BOB)
    desk.send(Cancel(running), Caller("cy"))
    desk.clear(running)
    desk.plan()
    assert desk[light].state is State.PREPARING


def test_a_group_with_a_larger_share_goes_first_at_equal_use() -> None:
    desk = Desk(book(nodes=1))
    usage = {key: Usage(key, 1e5, NOW) for key in ("group:vision", "group:speech")}
    desk.book = replace(desk.book, usage=usage, site=Site(shares={"speech": 3.0}))
    desk.reserve(8, caller=ADA)
    favoured = desk.reserve(8, caller=BOB)
    desk.plan()
    assert desk[favoured].state is State.PREPARING


def test_a_starving_request_goes_before_younger_ones_of_people_with_less_use() -> None:
    desk = Desk(book(nodes=1))
    desk.book = replace(desk.book, usage={"person:ada": Usage("person:ada", 1e9, NOW)})
    old = desk.reserve(8, caller=ADA)
    desk.now += desk.book.site.limits.starving_s
    desk.reserve(8, caller=BOB)
    desk.plan()
    assert desk[old].state is State.PREPARING


def test_a_promise_is_not_lost_to_somebody_with_less_use() -> None:
    desk = Desk(book(nodes=1))
    running = desk.start(8, caller=Caller("cy"))
    promised = desk.reserve(8, caller=ADA)
    desk.plan()
    desk.reserve(8, caller=Caller("new"))
    desk.plan()
    desk.send(Cancel(running), Caller("cy"))
    desk.clear(running)
    desk.plan()
    assert desk[promised].state is State.PREPARING


def test_a_quota_keeps_a_request_waiting_and_nobody_behind_it() -> None:
    desk = Desk(book(gpus_per_person=8))
    desk.start(8)
    over = desk.reserve(1)
    other = desk.reserve(8, caller=BOB)
    desk.plan()
    assert desk[over].state is State.QUEUED
    assert desk[over].promised_at is None
    assert desk[other].state is State.PREPARING


def test_a_disk_is_attached_to_one_session_only() -> None:
    desk = Desk(book())
    first = desk.start(1, disk="data")
    second = desk.reserve(1, disk="data")
    desk.plan()
    assert desk.book.disks["ada/data"].attached == first
    assert desk[second].state is State.QUEUED


def test_a_gang_starts_on_all_nodes_or_none_and_in_one_zone() -> None:
    desk = Desk(book(nodes=4))
    zones = {"gpu-1": "a", "gpu-2": "b", "gpu-3": "b", "gpu-4": "a"}
    desk.book = replace(desk.book, nodes={n: replace(row, zone=zones[n]) for n, row in desk.book.nodes.items()})
    first, second = desk.reserve(16), desk.reserve(16)
    desk.plan()
    assert [slot.node for slot in desk[first].slots] == ["gpu-1", "gpu-4"]
    assert [slot.node for slot in desk[second].slots] == ["gpu-2", "gpu-3"]


def test_without_enough_usable_nodes_a_promise_is_withdrawn_and_the_next_gets_one() -> None:
    desk = Desk(book())
    desk.start(8)
    large, small = desk.reserve(16, caller=BOB), desk.reserve(8, hours=20)
    desk.plan()
    assert desk[large].promised_at is not None
    desk.decide(reports.node_lost, "gpu-2", "no answer")
    desk.plan()
    assert desk[large].promised_at is None
    assert desk[small].promised_at is not None
    assert "withdraw promise" in desk.actions


def test_a_request_of_a_lost_node_is_queued_again_and_a_late_report_is_ignored() -> None:
    desk = Desk(book())
    id_ = desk.reserve(16)
    desk.plan()
    desk.decide(reports.node_lost, "gpu-2", "no answer")
    assert desk[id_].state is State.ENDING
    desk.clear(id_)
    assert desk[id_].state is State.QUEUED
    desk.decide(reports.node_back, "gpu-2")
    desk.plan()
    assert desk[id_].state is State.QUEUED  # the node is not clean yet
    desk.decide(reports.node_clean, "gpu-2", desk.book.nodes["gpu-2"].fence - 1)
    assert desk.book.nodes["gpu-2"].state is NodeState.CLEANING
    desk.decide(reports.node_clean, "gpu-2", desk.book.nodes["gpu-2"].fence)
    desk.plan()
    assert (desk[id_].state, desk[id_].attempt) == (State.PREPARING, 2)
    for node in ("gpu-1", "gpu-2"):
        desk.decide(reports.session_ready, id_, 1, node)
    assert desk[id_].state is State.PREPARING


def test_a_promise_covers_the_longest_that_a_session_can_take() -> None:
    desk = Desk(book(nodes=1))
    desk.reserve(8, hours=1, caller=BOB)
    desk.plan()
    started = desk.now
    waiting = desk.reserve(8)
    desk.plan()
    assert desk[waiting].promised_at == started + longest_hold_s(HOUR, desk.book.site.limits)
