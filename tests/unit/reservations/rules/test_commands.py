"""Commands: once for each key, by the owner only, and never against a promise."""

from __future__ import annotations

from gpuctl.reservations.rules.commands import Cancel, Edit, Extend, Keep, Submit
from gpuctl.reservations.rules.model import DAY, HOUR, State
from gpuctl.reservations.rules.requests import Request
from tests.rig.reservations.books import ADA, BOB, ROOT, Desk, book


def test_a_command_that_comes_twice_acts_once_and_has_one_answer() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    before = desk[id_].expires_at
    first = desk.send(Extend(id_, HOUR), key="same")
    desk.now += 60
    assert desk.send(Extend(id_, HOUR), key="same") == first
    assert desk[id_].expires_at == (before or 0) + HOUR


def test_a_key_cannot_carry_another_command_or_reach_another_persons_answer() -> None:
    desk = Desk(book())
    first = desk.send(Submit(Request(1)), key="k")
    other = desk.send(Submit(Request(2)), key="k")
    assert not other.accepted
    assert "belongs to another command" in other.message
    assert desk.send(Submit(Request(1)), BOB, key="k").reservation != first.reservation


def test_a_late_request_after_its_cancellation_does_not_come_back() -> None:
    desk = Desk(book())
    id_ = desk.send(Submit(Request(1)), key="k").reservation
    desk.send(Cancel(id_))
    desk.send(Submit(Request(1)), key="k")
    assert id_ not in desk


def test_only_the_owner_or_an_admin_may_touch_a_reservation() -> None:
    desk = Desk(book())
    id_ = desk.start(8)
    for command in (Cancel(id_), Extend(id_, 60), Edit(id_, name="mine"), Keep(id_, 60)):
        answer = desk.send(command, BOB)
        assert not answer.accepted
        assert f"it belongs to ada, and you are {BOB.person}" in answer.message
    assert [action for action in desk.actions if action.startswith("refuse")] == [
        "refuse cancel",
        "refuse extend",
        "refuse edit",
        "refuse keep",
    ]
    assert desk[id_].state is State.ACTIVE
    assert desk.send(Cancel(id_), ROOT).accepted


def test_an_extension_past_a_promised_start_is_refused_with_what_is_possible() -> None:
    desk = Desk(book(nodes=1))
    id_ = desk.start(8)
    waiting = desk.reserve(8, caller=BOB)
    desk.plan()
    promised = desk[waiting].promised_at
    refused = desk.send(Extend(id_, HOUR))
    assert not refused.accepted
    assert f"reservation {waiting} of bob was promised these GPUs" in refused.message
    assert "up to 0 minutes are possible" in refused.hint
    assert not desk.send(Extend(id_, HOUR, over_promise=True), ADA).accepted  # ada is no admin
    assert desk[waiting].promised_at == promised


def test_an_admin_extends_over_a_promise_which_moves() -> None:
    desk = Desk(book(nodes=1))
    id_ = desk.start(8)
    waiting = desk.reserve(8, caller=BOB)
    desk.plan()
    promised = desk[waiting].promised_at or 0
    assert desk.send(Extend(id_, HOUR, over_promise=True), ROOT).accepted
    assert desk[waiting].promised_at == promised + HOUR
    assert "move promise" in desk.actions


def test_an_extension_that_keeps_the_promise_is_granted_and_warns_again() -> None:
    desk = Desk(book(nodes=2))
    id_ = desk.start(8)
    desk.start(8, hours=5)
    desk.reserve(16, caller=BOB)
    desk.plan()
    desk.change(id_, warned_min=5, warned_at=desk.now)
    assert desk.send(Extend(id_, HOUR)).accepted
    assert desk[id_].warned_min is None


def test_extensions_have_a_limit_and_a_negative_one_is_refused() -> None:
    desk = Desk(book())
    id_ = desk.start(1, hours=24)
    assert desk.send(Extend(id_, DAY)).accepted
    assert "up to 0 more minutes" in desk.send(Extend(id_, 60)).hint
    assert not desk.send(Extend(id_, -HOUR)).accepted


def test_a_request_that_waits_cannot_be_extended_but_edited() -> None:
    desk = Desk(book())
    id_ = desk.reserve(1)
    assert "edit" in desk.send(Extend(id_, HOUR)).hint
    assert desk.send(Edit(id_, name="sweep", length_s=2 * HOUR)).accepted
    assert (desk[id_].name, desk[id_].length_s) == ("sweep", 2 * HOUR)
    assert not desk.send(Edit(id_, length_s=100 * HOUR)).accepted
    assert not desk.send(Edit(id_)).accepted


def test_a_person_may_not_fill_the_queue() -> None:
    desk = Desk(book(queued_per_person=2))
    desk.reserve(1)
    desk.reserve(1)
    assert "as many as are allowed" in desk.send(Submit(Request(1))).message
    desk.reserve(1, caller=BOB)


def test_idle_detection_can_be_switched_off_within_a_budget() -> None:
    desk = Desk(book(longest_keep_s=HOUR))
    id_ = desk.start(1, hours=4)
    assert desk.send(Keep(id_, HOUR)).accepted
    assert desk[id_].keep_until_at == desk.now + HOUR
    assert "0 minutes are left" in desk.send(Keep(id_, 60)).hint
