"""The state machine of a reservation, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from gpuctl.reservations.rules.model import State


class Event(StrEnum):
    """Causes of a change of state."""

    ACCEPT = "accept"
    START = "start"
    READY = "ready"
    CANCEL = "cancel"
    EXPIRE = "expire"
    FAIL = "fail"
    RETRY = "retry"
    CLEARED_EXPIRED = "cleared, expired"
    CLEARED_CANCELLED = "cleared, cancelled"
    CLEARED_FAILED = "cleared, failed"
    CLEARED_QUEUED = "cleared, queued again"


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.REQUESTED, Event.ACCEPT): State.QUEUED,
    (State.QUEUED, Event.START): State.PREPARING,
    (State.QUEUED, Event.CANCEL): State.CANCELLED,
    (State.QUEUED, Event.FAIL): State.FAILED,
    (State.PREPARING, Event.READY): State.ACTIVE,
    (State.PREPARING, Event.CANCEL): State.ENDING,
    (State.PREPARING, Event.FAIL): State.ENDING,
    (State.PREPARING, Event.RETRY): State.ENDING,
    (State.ACTIVE, Event.CANCEL): State.ENDING,
    (State.ACTIVE, Event.EXPIRE): State.ENDING,
    (State.ACTIVE, Event.FAIL): State.ENDING,
    (State.ENDING, Event.CLEARED_EXPIRED): State.EXPIRED,
    (State.ENDING, Event.CLEARED_CANCELLED): State.CANCELLED,
    (State.ENDING, Event.CLEARED_FAILED): State.FAILED,
    (State.ENDING, Event.CLEARED_QUEUED): State.QUEUED,
}
# The event that begins an ending -> the state after it.
OUTCOMES: Mapping[Event, State] = {
    Event.CANCEL: State.CANCELLED,
    Event.EXPIRE: State.EXPIRED,
    Event.FAIL: State.FAILED,
    Event.RETRY: State.QUEUED,
}
CLEARED: Mapping[State, Event] = {
    State.EXPIRED: Event.CLEARED_EXPIRED,
    State.CANCELLED: Event.CLEARED_CANCELLED,
    State.FAILED: Event.CLEARED_FAILED,
    State.QUEUED: Event.CLEARED_QUEUED,
}
TERMINAL = frozenset({State.EXPIRED, State.CANCELLED, State.FAILED})
HOLDING = frozenset({State.PREPARING, State.ACTIVE, State.ENDING})  # their GPUs are in the ledger


def next_state(state: State, event: Event) -> State | None:
    """The state after an event; None if the event does not apply."""
    return TRANSITIONS.get((state, event))
