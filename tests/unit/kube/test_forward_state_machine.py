"""What one forward does over time."""

from __future__ import annotations

import pytest

from gpuctl.kube.forward.model import Slot
from gpuctl.kube.forward.state_machine import NOBODY, SILENT, Action, Line, Observation, State, moved, pause, step

SLOT = Slot(((8081, 8080),), "a", "uid-a")
UP = Line(SLOT, State.UP)


def test_a_new_line_starts_at_once() -> None:
    line, action = step(Line(SLOT), Observation(), 0.0)
    assert (line.state, action, line.reconnects) == (State.STARTING, Action.START, 0)


def test_a_forward_is_up_only_when_the_pod_answers() -> None:
    starting, _ = step(Line(SLOT), Observation(), 0.0)
    listening, action = step(starting, Observation("uid-a", listens=True), 1.0)
    assert (listening.state, action) == (State.STARTING, Action.NOTHING)
    assert step(listening, Observation("uid-a", listens=True, answers=True), 1.0)[0].state is State.UP


def test_an_exited_kubectl_is_restarted_after_growing_pauses() -> None:
    line, waits = UP, []
    now = 0.0
    for _ in range(7):
        line, action = step(line, Observation("uid-a", exited=True, message="lost connection to pod"), now)
        assert (line.state, action, line.why) == (State.RETRYING, Action.STOP, "lost connection to pod")
        waits.append(line.until - now)
        assert step(line, Observation(), line.until - 0.1)[1] is Action.NOTHING
        now = line.until
        line, action = step(line, Observation(), now)
        assert action is Action.START
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert line.reconnects == 7


def test_a_forward_restarts_after_three_unanswered_probes() -> None:
    line = UP
    for number in range(1, SILENT):
        line, action = step(line, Observation("uid-a", listens=True, answers=False), float(number))
        assert (line.state, action) == (State.SILENT, Action.NOTHING)
    line, action = step(line, Observation("uid-a", listens=True, answers=False), 9.0)
    assert (line.state, action) == (State.RETRYING, Action.STOP)


def test_an_answer_resets_the_failures() -> None:
    line = Line(SLOT, State.SILENT, failures=3, unanswered=2, why="x")
    line_after = step(line, Observation("uid-a", listens=True, answers=True), 0.0)[0]
    assert (line_after.state, line_after.failures, line_after.unanswered, line_after.why) == (State.UP, 0, 0, "")


def test_a_replacement_pod_does_not_wait_for_the_failures_of_the_old_one() -> None:
    failing = Line(SLOT, State.RETRYING, failures=6, until=30.0, why="x")
    line = moved(failing, Slot(SLOT.ports, "b", "uid-b"))
    assert step(line, Observation(), 1.0)[1] is Action.START


def test_the_kubectl_of_a_deleted_pod_is_stopped_first() -> None:
    line = moved(UP, Slot(SLOT.ports, "b", "uid-b"))
    stopped, action = step(line, Observation("uid-a", listens=True), 1.0)
    assert action is Action.STOP
    assert step(stopped, Observation(), 1.0)[1] is Action.START


def test_a_forward_without_a_pod_waits_and_starts_nothing() -> None:
    gone = moved(UP, Slot(SLOT.ports, "a", ""))
    stopped, action = step(gone, Observation("uid-a", listens=True), 1.0)
    assert action is Action.STOP
    waiting, action = step(stopped, Observation(), 2.0)
    assert (waiting.state, action) == (State.WAITING, Action.NOTHING)
    back = moved(waiting, SLOT)
    assert step(back, Observation(), 3.0)[1] is Action.START


def test_a_kubectl_that_never_listens_is_given_up() -> None:
    starting, _ = step(Line(SLOT), Observation(), 0.0)
    assert step(starting, Observation("uid-a"), 10.0)[1] is Action.NOTHING
    line, action = step(starting, Observation("uid-a"), 21.0)
    assert (line.state, action) == (State.RETRYING, Action.STOP)


def test_no_pause_is_longer_than_half_a_minute() -> None:
    assert pause(50) == 30


def test_an_unprobed_port_is_reported_as_open_only() -> None:
    starting, _ = step(Line(SLOT), Observation(), 0.0)
    line, action = step(starting, Observation("uid-a", listens=True, unprobed=True), 1.0)
    assert (line.state, action) == (State.OPEN, Action.NOTHING)
    assert step(line, Observation("uid-a", exited=True, message="lost connection"), 2.0)[0].state is State.RETRYING


# As kubectl logs it (client-go, portforward.go): of the pod; of a kubelet and of an API that are not there.
LOGGED = 'E0101 10:00:00.000000 7 portforward.go:424] "Unhandled Error" err="{}"'
IN_THE_POD = LOGGED.format(
    "an error occurred forwarding 5678 -> 5678: error forwarding port 5678 to pod 1a2b, uid : failed to connect to "
    "localhost:5678 inside namespace 3c4d, IPv4: dial tcp4 127.0.0.1:5678: connect: connection refused"
)
ELSEWHERE = (
    "error upgrading connection: error dialing backend: dial tcp 10.0.0.5:10250: connect: connection refused",
    "Get https://10.0.0.1:6443/api: dial tcp 10.0.0.1:6443: connect: connection refused",
)


def test_an_unprobed_forward_is_restarted_when_kubectl_reports_an_error() -> None:
    line, action = step(
        Line(SLOT, State.OPEN), Observation("uid-a", listens=True, message=IN_THE_POD, unprobed=True), 1.0
    )
    assert (line.state, line.until, action, line.why) == (State.RETRYING, 2.0, Action.STOP, NOBODY)


@pytest.mark.parametrize(
    "output",
    [
        LOGGED.format("error copying from remote stream to local connection: connection reset by peer"),
        "W0101 10:00:00.000000 7 warnings.go:70] the plugin that logs in is an old one",
    ],
)
def test_a_disconnecting_debugger_or_a_warning_does_not_restart_the_forward(output: str) -> None:
    line, action = step(Line(SLOT, State.OPEN), Observation("uid-a", listens=True, message=output, unprobed=True), 1.0)
    assert (line.state, action) == (State.OPEN, Action.NOTHING)


@pytest.mark.parametrize("output", ELSEWHERE)
def test_a_connection_refused_by_kubelet_or_api_is_not_reported_as_a_pod_without_a_listener(output: str) -> None:
    assert step(UP, Observation("uid-a", exited=True, message=output), 1.0)[0].why == output
