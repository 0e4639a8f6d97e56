"""What one forward does over time."""

from __future__ import annotations

from gpuctl.kube.forward.line import SILENT, Action, Line, Seen, State, moved, pause, step
from gpuctl.kube.forward.model import Slot

SLOT = Slot(((8081, 8080),), "a", "uid-a")
UP = Line(SLOT, State.UP)


def test_a_new_line_starts_at_once() -> None:
    line, action = step(Line(SLOT), Seen(), 0.0)
    assert (line.state, action, line.reconnects) == (State.STARTING, Action.START, 0)


def test_it_is_up_only_when_the_pod_answers() -> None:
    starting, _ = step(Line(SLOT), Seen(), 0.0)
    listening, action = step(starting, Seen("uid-a", listens=True), 1.0)
    assert (listening.state, action) == (State.STARTING, Action.NOTHING)
    assert step(listening, Seen("uid-a", listens=True, answers=True), 1.0)[0].state is State.UP


def test_an_ended_kubectl_is_begun_anew_after_a_pause_that_grows() -> None:
    line, waits = UP, []
    now = 0.0
    for _ in range(7):
        line, action = step(line, Seen("uid-a", ended=True, said="lost connection to pod"), now)
        assert (line.state, action, line.why) == (State.RETRYING, Action.STOP, "lost connection to pod")
        waits.append(line.until - now)
        assert step(line, Seen(), line.until - 0.1)[1] is Action.NOTHING
        now = line.until
        line, action = step(line, Seen(), now)
        assert action is Action.START
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert line.reconnects == 7


def test_a_pod_that_does_not_answer_is_given_some_chances() -> None:
    line = UP
    for number in range(1, SILENT):
        line, action = step(line, Seen("uid-a", listens=True, answers=False), float(number))
        assert (line.state, action) == (State.SILENT, Action.NOTHING)
    line, action = step(line, Seen("uid-a", listens=True, answers=False), 9.0)
    assert (line.state, action) == (State.RETRYING, Action.STOP)


def test_an_answer_forgets_the_failures() -> None:
    line = Line(SLOT, State.SILENT, failures=3, unanswered=2, why="x")
    found = step(line, Seen("uid-a", listens=True, answers=True), 0.0)[0]
    assert (found.state, found.failures, found.unanswered, found.why) == (State.UP, 0, 0, "")


def test_a_replaced_pod_is_not_made_to_wait_for_the_failures_of_the_old_one() -> None:
    failing = Line(SLOT, State.RETRYING, failures=6, until=30.0, why="x")
    line = moved(failing, Slot(SLOT.ports, "b", "uid-b"))
    assert step(line, Seen(), 1.0)[1] is Action.START


def test_the_kubectl_of_a_pod_that_went_is_ended_first() -> None:
    line = moved(UP, Slot(SLOT.ports, "b", "uid-b"))
    stopped, action = step(line, Seen("uid-a", listens=True), 1.0)
    assert action is Action.STOP
    assert step(stopped, Seen(), 1.0)[1] is Action.START


def test_without_a_pod_it_waits_and_starts_nothing() -> None:
    gone = moved(UP, Slot(SLOT.ports, "a", ""))
    stopped, action = step(gone, Seen("uid-a", listens=True), 1.0)
    assert action is Action.STOP
    waiting, action = step(stopped, Seen(), 2.0)
    assert (waiting.state, action) == (State.WAITING, Action.NOTHING)
    back = moved(waiting, SLOT)
    assert step(back, Seen(), 3.0)[1] is Action.START


def test_a_kubectl_that_never_listens_is_given_up() -> None:
    starting, _ = step(Line(SLOT), Seen(), 0.0)
    assert step(starting, Seen("uid-a"), 10.0)[1] is Action.NOTHING
    line, action = step(starting, Seen("uid-a"), 21.0)
    assert (line.state, action) == (State.RETRYING, Action.STOP)


def test_no_pause_is_longer_than_half_a_minute() -> None:
    assert pause(50) == 30
