"""The table of states and the ledger of GPUs."""

from __future__ import annotations

import pytest

from gpuctl.reservations.rules import ledger
from gpuctl.reservations.rules.decision import Draft, InvalidTransition
from gpuctl.reservations.rules.ledger import LedgerError
from gpuctl.reservations.rules.model import Node, Slot, State
from gpuctl.reservations.rules.state_machine import CLEARED, OUTCOMES, TERMINAL, TRANSITIONS, Event, next_state
from tests.rig.reservations.books import Desk, book

NODE = Node("gpu-1", "h100", (None,) * 4)


def test_nothing_leaves_a_terminal_state_and_everything_else_reaches_one() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State) - TERMINAL
    reached = set(TERMINAL)
    while more := {state for (state, _), after in TRANSITIONS.items() if after in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_each_outcome_of_an_ending_has_the_event_that_enters_it() -> None:
    assert {CLEARED[outcome] for outcome in OUTCOMES.values()} == {e for s, e in TRANSITIONS if s is State.ENDING}
    assert all(next_state(State.ENDING, CLEARED[outcome]) is outcome for outcome in OUTCOMES.values())


def test_an_event_that_does_not_apply_is_an_error_and_writes_nothing() -> None:
    desk = Desk(book())
    id_ = desk.reserve(1)
    draft = Draft(desk.book, desk.now, "test")
    with pytest.raises(InvalidTransition, match=r"ready does not apply to .* queued"):
        draft.move(desk[id_], Event.READY, "too early")
    assert draft.decision().empty


def test_a_gpu_has_one_holder() -> None:
    node = ledger.allocate(NODE, Slot("gpu-1", (0, 2)), "r1")
    assert node.allocated == ("r1", None, "r1", None)
    assert node.free == (1, 3)
    with pytest.raises(LedgerError, match="GPU 2 of gpu-1 is allocated to r1"):
        ledger.allocate(node, Slot("gpu-1", (1, 2)), "r2")


@pytest.mark.parametrize("gpus", [(), (4,), (-1,), (1, 1)])
def test_gpus_that_do_not_exist_are_not_allocated(gpus: tuple[int, ...]) -> None:
    with pytest.raises(LedgerError):
        ledger.allocate(NODE, Slot("gpu-1", gpus), "r1")


def test_a_second_release_changes_nothing() -> None:
    node = ledger.release(ledger.allocate(NODE, Slot("gpu-1", (0,)), "r1"), "r1")
    assert node.free == (0, 1, 2, 3)
    assert ledger.release(node, "r1") is node


def test_every_change_of_the_allocation_has_a_higher_fence() -> None:
    node = ledger.allocate(NODE, Slot("gpu-1", (0,)), "r1")
    assert NODE.fence < node.fence < ledger.release(node, "r1").fence
