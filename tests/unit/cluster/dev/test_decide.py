"""When a program that is being written is started, ended and begun anew."""

from __future__ import annotations

from gpuctl.cluster.dev.decide import (
    QUIET_S,
    SETTLE_S,
    Action,
    Away,
    Changed,
    Cleared,
    Event,
    Exited,
    Leave,
    Lost,
    Phase,
    Reached,
    Started,
    State,
    Tick,
    begin,
    refused,
    step,
)

TWO = begin(2, "train.py")
LATER = 1000.0


def after(state: State, *events: Event, now: float = 0.0) -> tuple[State, Action]:
    """The last action, and whatever was to be done before it."""
    action = Action.NOTHING
    for event in events:
        state, action = step(state, event, now)
    return state, action


RUNS = after(TWO, Reached(0, 1), Reached(1, 1), Started())[0]


def edited(version: int = 2, path: str = "train.py") -> tuple[Event, ...]:
    return (Changed(version, frozenset({path})), Reached(0, version), Reached(1, version))


def test_it_starts_once_every_pod_has_all_of_it() -> None:
    state, action = after(TWO, Reached(1, 1))
    assert action is Action.NOTHING
    assert step(state, Reached(0, 1), 0.0)[1] is Action.START


def test_a_change_restarts_it_only_after_all_pods_have_it() -> None:
    state, action = after(RUNS, Changed(2, frozenset({"train.py"})), Reached(0, 2))
    assert (action, step(state, Tick(), LATER)[1]) == (Action.NOTHING, Action.NOTHING)
    assert step(state, Reached(1, 2), LATER)[1] is Action.STOP


def test_it_waits_until_nothing_has_changed_for_a_moment() -> None:
    state, action = after(RUNS, *edited(2), *edited(3))
    assert action is Action.NOTHING
    assert step(state, Tick(), QUIET_S / 2)[1] is Action.NOTHING
    assert step(state, Tick(), QUIET_S)[1] is Action.STOP


def test_the_old_one_is_gone_before_the_new_one_starts() -> None:
    state, action = after(RUNS, *edited(), now=0.0)
    state, action = step(state, Tick(), LATER)
    assert (state.phase, action) == (Phase.STOPPING, Action.STOP)
    assert step(state, Tick(), LATER)[1] is Action.NOTHING
    assert step(state, Exited(), LATER)[1] is Action.START


def test_a_change_while_it_is_started_is_not_lost() -> None:
    starting, action = after(TWO, Reached(0, 1), Reached(1, 1))
    assert action is Action.START
    state, action = after(starting, *edited(), Tick(), now=LATER)
    assert action is Action.NOTHING
    assert step(state, Started(), LATER + QUIET_S)[1] is Action.STOP


def test_a_change_while_it_is_ended_is_waited_for() -> None:
    stopping = after(after(RUNS, *edited())[0], Tick(), now=LATER)[0]
    state, action = after(stopping, Changed(3), Exited(), now=LATER)
    assert action is Action.NOTHING
    state, action = after(state, Reached(0, 3), Reached(1, 3), now=LATER + QUIET_S)
    assert (state.ran, action) == (3, Action.START)


def test_a_program_that_ended_is_started_again_on_the_next_change_and_not_before() -> None:
    state, action = after(RUNS, Exited(), Tick(), now=LATER)
    assert (state.phase, action) == (Phase.WAITING, Action.NOTHING)
    assert after(after(state, *edited())[0], Tick(), now=LATER)[1] is Action.START


def test_a_pod_that_is_away_is_waited_for() -> None:
    state, _ = after(RUNS, Away(1), Changed(2), Reached(0, 2))
    assert step(state, Tick(), LATER)[1] is Action.NOTHING
    assert step(state, Reached(1, 2), LATER)[1] is Action.STOP


def test_a_sync_that_breaks_and_mends_leaves_the_program_alone() -> None:
    assert after(RUNS, Away(0), Reached(0, 1), Tick(), now=LATER)[1] is Action.NOTHING


def test_a_pod_may_be_faster_than_the_news() -> None:
    state, _ = after(RUNS, Reached(0, 2), Reached(1, 2), Changed(2))
    assert after(state, Tick(), now=QUIET_S)[1] is Action.STOP


def test_a_change_that_a_pod_did_not_take_is_not_run() -> None:
    state, _ = after(RUNS, Changed(2, frozenset({"a.py", "b.py"})), Reached(0, 2), Reached(1, 2, frozenset({"a.py"})))
    assert step(state, Tick(), LATER)[1] is Action.NOTHING
    assert refused(state) == {1: frozenset({"a.py"})}


def test_a_file_that_was_never_taken_does_not_hold_up_changes_of_others() -> None:
    state, _ = after(RUNS, Changed(2, frozenset({"b.py"})), Reached(0, 2), Reached(1, 2, frozenset({"old.bin"})))
    assert step(state, Tick(), LATER)[1] is Action.STOP


def test_it_does_not_begin_with_a_program_that_a_pod_did_not_take() -> None:
    assert after(TWO, Reached(0, 1, frozenset({"train.py"})), Reached(1, 1))[1] is Action.NOTHING
    assert after(TWO, Reached(0, 1, frozenset({"old.bin"})), Reached(1, 1))[1] is Action.START


def test_a_lost_program_is_started_anew_once_it_is_gone_and_all_has_settled() -> None:
    state, action = after(RUNS, Lost())
    assert (state.phase, action) == (Phase.STOPPING, Action.NOTHING)
    state, action = after(state, Cleared())
    assert action is Action.NOTHING
    assert step(state, Tick(), SETTLE_S)[1] is Action.START
    assert step(step(state, Away(0), 1.0)[0], Tick(), SETTLE_S)[1] is Action.NOTHING


def test_the_end_comes_when_the_program_is_gone() -> None:
    state, action = after(RUNS, Leave())
    assert action is Action.STOP
    assert after(state, Tick(), *edited())[1] is Action.NOTHING
    assert after(state, Exited())[1] is Action.LEAVE
    assert after(TWO, Leave())[1] is Action.LEAVE
    assert after(RUNS, Lost(), Leave())[1] is Action.NOTHING
    assert after(RUNS, Lost(), Leave(), Cleared())[1] is Action.LEAVE


def test_a_program_that_is_being_started_is_ended_too() -> None:
    starting, _ = after(TWO, Reached(0, 1), Reached(1, 1))
    assert step(starting, Leave(), 0.0)[1] is Action.STOP


def test_without_restarts_changes_reach_the_pods_and_the_session_ends_with_the_program() -> None:
    once = after(begin(1, "train.py", restarts=False), Reached(0, 1), Started())[0]
    state, action = after(once, Changed(2), Reached(0, 2))
    assert (action, step(state, Tick(), LATER)[1]) == (Action.NOTHING, Action.NOTHING)
    assert step(state, Exited(), LATER)[1] is Action.LEAVE
    assert after(state, Lost(), Cleared(), now=LATER)[1] is Action.LEAVE
