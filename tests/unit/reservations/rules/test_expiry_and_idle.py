"""Warnings, ends by time and by idleness."""

from __future__ import annotations

import pytest

from gpuctl.reservations.rules import expiry, idle
from gpuctl.reservations.rules.commands import Extend
from gpuctl.reservations.rules.idle import Activity, Sample
from gpuctl.reservations.rules.model import HOUR, Limits, NodeState, State
from tests.rig.reservations.books import NOW, Desk, book


def warn(desk: Desk) -> list[int]:
    """Deliver and record what is due."""
    due = expiry.warnings_due(desk.book, desk.now)
    for warning in due:
        desk.decide(expiry.record_warning, warning, 1)
    return [warning.minutes for warning in due]


def at_left(desk: Desk, id_: str, minutes: float) -> None:
    desk.now = (desk[id_].end_at or 0) - int(minutes * 60)


def test_the_most_urgent_warning_is_sent_once() -> None:
    desk = Desk(book())
    id_ = desk.start(1)
    sent = []
    for minutes in (31, 29, 28, 14, 13, 4, 3):
        at_left(desk, id_, minutes)
        sent.append(warn(desk))
    assert sent == [[], [30], [], [15], [], [5], []]


def test_after_an_outage_only_the_most_urgent_warning_is_sent() -> None:
    desk = Desk(book())
    id_ = desk.start(1)
    at_left(desk, id_, 4)
    assert warn(desk) == [5]
    at_left(desk, id_, 3)
    assert warn(desk) == []


def test_nobody_loses_access_without_a_warning_and_the_grace_after_it() -> None:
    desk = Desk(book(grace_s=120))
    id_ = desk.start(1)
    at_left(desk, id_, -10)  # the service was down for the last hour
    desk.decide(expiry.tick)
    assert warn(desk) == [5]
    desk.now += 119
    desk.decide(expiry.tick)
    assert desk[id_].state is State.ACTIVE
    desk.now += 1
    desk.decide(expiry.tick)
    assert desk[id_].state is State.ENDING


def test_an_extension_while_a_warning_is_delivered_wins() -> None:
    desk = Desk(book())
    id_ = desk.start(1)
    at_left(desk, id_, 5)
    [warning] = expiry.warnings_due(desk.book, desk.now)
    desk.send(Extend(id_, 2 * HOUR))
    desk.decide(expiry.record_warning, warning, 1)
    assert desk[id_].warned_min is None


def test_a_warning_that_was_not_delivered_is_recorded_and_tried_again_there() -> None:
    desk = Desk(book())
    id_ = desk.start(16)
    at_left(desk, id_, 5)
    [warning] = expiry.warnings_due(desk.book, desk.now)
    desk.decide(expiry.record_warning, warning, 1, {"gpu-2": "no answer"})
    at_left(desk, id_, 4)
    [again] = expiry.warnings_due(desk.book, desk.now)
    assert (desk[id_].unwarned, again.nodes, again.minutes, again.left_s) == (("gpu-2",), ("gpu-2",), 5, 240)
    desk.decide(expiry.record_warning, again, 1)
    assert (desk[id_].unwarned, desk[id_].warned_at) == ((), desk.now)
    assert expiry.warnings_due(desk.book, desk.now) == []


def test_the_last_node_of_a_gang_that_is_warned_has_the_whole_grace() -> None:
    desk = Desk(book(grace_s=120))
    id_ = desk.start(16)
    at_left(desk, id_, 4)
    [warning] = expiry.warnings_due(desk.book, desk.now)
    desk.decide(expiry.record_warning, warning, 1, {"gpu-2": "no answer"})
    at_left(desk, id_, -1.5)
    [again] = expiry.warnings_due(desk.book, desk.now)
    desk.decide(expiry.record_warning, again, 1)
    states = []
    for seconds in (119, 1):
        desk.now += seconds
        desk.decide(expiry.tick)
        states.append(desk[id_].state)
    assert states == [State.ACTIVE, State.ENDING]


def test_a_session_that_nobody_can_warn_ends_all_the_same_and_the_first_delivery_begins_the_grace() -> None:
    desk = Desk(book(grace_s=120))
    id_, other = desk.start(1), desk.start(1)
    at_left(desk, id_, -10)
    for warning in expiry.warnings_due(desk.book, desk.now):
        desk.decide(expiry.record_warning, warning, 0, {"gpu-1": "no answer"})
    desk.now += 100
    [first, _] = expiry.warnings_due(desk.book, desk.now)
    desk.decide(expiry.record_warning, first, 1)
    desk.now += 20
    desk.decide(expiry.tick)
    assert {desk[first.reservation].state, desk[({id_, other} - {first.reservation}).pop()].state} == {
        State.ACTIVE,
        State.ENDING,
    }
    desk.now += 100
    desk.decide(expiry.tick)
    assert desk[first.reservation].state is State.ENDING


def test_a_clock_that_goes_back_decides_nothing_earlier() -> None:
    desk = Desk(book())
    id_ = desk.start(1)
    desk.now -= 5000
    other = desk.start(1)
    assert (desk[other].submitted_at, desk[id_].active_at) >= (desk[id_].submitted_at, NOW)


def test_a_session_that_is_not_ready_in_time_fails() -> None:
    desk = Desk(book())
    id_ = desk.reserve(1)
    desk.plan()
    desk.now += 600
    desk.decide(expiry.tick)
    assert desk[id_].outcome is State.FAILED
    assert desk[id_].reason == "gpu-1 was not ready within 600 s"


def test_a_node_that_cannot_be_cleared_leaves_the_pool_and_holds_nobody() -> None:
    desk = Desk(book())
    id_ = desk.reserve(16)
    desk.plan()
    desk.now += 600
    desk.decide(expiry.tick)
    desk.change(id_, cleared=("gpu-1",))
    desk.now += 6 * 300
    desk.decide(expiry.tick)
    assert id_ not in desk
    assert {name: node.state for name, node in desk.book.nodes.items()} == {
        "gpu-1": NodeState.READY,
        "gpu-2": NodeState.CLEANING,
    }


LIMITS = Limits()
QUIET = [Sample(at, 0.0, 0) for at in range(NOW, NOW + 2 * HOUR + 1, 60)]


@pytest.mark.parametrize(
    ("samples", "activity", "reason"),
    [
        (QUIET, Activity.IDLE, "for 60 minutes"),
        ([], Activity.UNKNOWN, "no samples"),
        (QUIET[:-10], Activity.UNKNOWN, "no samples for 600 s"),
        (QUIET[:70] + QUIET[80:], Activity.UNKNOWN, "no samples for 660 s"),
        ([*QUIET[:-1], Sample(NOW + 2 * HOUR, None, 0)], Activity.UNKNOWN, "could not be read"),
        ([*QUIET[:-1], Sample(NOW + 2 * HOUR, 0.0, None)], Activity.UNKNOWN, "could not be read"),
        ([*QUIET[:-1], Sample(NOW + 2 * HOUR, 3.0, 0)], Activity.BUSY, "up to 3 % busy"),
        ([*QUIET[:-1], Sample(NOW + 2 * HOUR, 0.0, 1)], Activity.BUSY, "1 ssh connections"),
        ([*QUIET[:-1], Sample(NOW + 2 * HOUR, 0.0, 0, 30)], Activity.BUSY, "Jupyter was used"),
    ],
)
def test_idle_is_only_what_was_sampled_without_gaps(samples: list[Sample], activity: Activity, reason: str) -> None:
    desk = Desk(book())
    id_ = desk.start(1, hours=4)
    result, text = idle.judge(desk[id_], samples, LIMITS, NOW + 2 * HOUR)
    assert result is activity
    assert reason in text


def test_a_young_session_is_not_idle() -> None:
    desk = Desk(book())
    id_ = desk.start(1, hours=4)
    assert idle.judge(desk[id_], [], LIMITS, NOW + 600)[0] is Activity.BUSY


def test_an_idle_session_is_announced_warned_and_ended_unless_it_is_used_again() -> None:
    desk = Desk(book())
    id_ = desk.start(1, hours=8)
    desk.now += 2 * HOUR
    desk.decide(idle.record, desk[id_], Activity.IDLE, "no work")
    assert desk[id_].end_at == desk.now + 30 * 60
    assert warn(desk) == [30]
    desk.decide(idle.record, desk[id_], Activity.UNKNOWN, "no samples")
    assert desk[id_].end_at == desk[id_].expires_at
    desk.decide(idle.record, desk[id_], Activity.IDLE, "no work")
    at_left(desk, id_, 5)
    warn(desk)
    at_left(desk, id_, -2)
    desk.decide(expiry.tick)
    assert desk[id_].reason == "idle"
