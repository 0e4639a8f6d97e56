"""Ends by time: warnings, expiry, and the limits of states that must not last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Book, Limits, NodeState, Reservation, State
from gpuctl.reservations.rules.state_machine import Event


@dataclass(frozen=True)
class Notice:
    """A warning to deliver on `nodes`. `minutes` is the threshold; `left_s` the time that is really left."""

    reservation: str
    minutes: int
    left_s: int
    idle: bool
    nodes: tuple[str, ...]


def warnings_due(book: Book, now: int) -> list[Notice]:
    """The most urgent warning that is due and not recorded, or not delivered, for each active reservation."""
    due = (_due(reservation, book.site.limits, now) for reservation in book.in_state(State.ACTIVE))
    return [warning for warning in due if warning is not None]


def _due(reservation: Reservation, limits: Limits, now: int) -> Notice | None:
    if reservation.end_at is None:
        return None
    left_s = reservation.end_at - now
    reached = [minutes for minutes in limits.warnings_min if left_s <= minutes * 60]
    if not reached:
        return None
    minutes, nodes = min(reached), tuple(slot.node for slot in reservation.slots)
    if reservation.warned_min is not None and reservation.warned_min <= minutes:
        minutes, nodes = reservation.warned_min, reservation.unwarned
    idle = reservation.end_at == reservation.idle_at
    return Notice(reservation.id, minutes, max(0, left_s), idle, nodes) if nodes else None


def record_warning(draft: Draft, warning: Notice, terminals: int, missed: Mapping[str, str] | None = None) -> None:
    """Record a warning after its delivery, so that a crash in between repeats it and never drops it.

    `missed`: nodes that it did not reach, and why. It is tried again there, but counts as sent: a session must not last
    for ever because nobody can be warned. The grace begins again with the first delivery on each node: once for each.
    """
    missed = missed or {}
    reservation = draft.book.reservations.get(warning.reservation)
    if reservation is None or reservation.state is not State.ACTIVE:
        return
    if _due(reservation, draft.book.site.limits, draft.now) is None:  # extended or recorded in the meantime
        return
    again = reservation.warned_min == warning.minutes
    if again and set(missed) >= set(warning.nodes):
        return
    unwarned = tuple(name for name in warning.nodes if name in missed)
    draft.put(replace(reservation, warned_min=warning.minutes, warned_at=draft.now, unwarned=unwarned))
    parts = [f"shown on {terminals} terminals and in the file"] if len(unwarned) < len(warning.nodes) else []
    parts += [f"not delivered on {name}: {missed[name]}" for name in unwarned]
    draft.note("warn", reservation.id, f"{warning.minutes} minutes, {'; '.join(parts)}")


def tick(draft: Draft) -> None:
    """End what is over, and what has been in a state for longer than its limit."""
    for reservation in list(draft.book.reservations.values()):
        _RULES.get(reservation.state, _nothing)(draft, reservation)


def _expire(draft: Draft, reservation: Reservation) -> None:
    limits, end_at = draft.book.site.limits, reservation.end_at
    if end_at is None or draft.now < end_at + limits.grace_s:
        return
    last = min(limits.warnings_min, default=None)
    warned = reservation.warned_at is not None and reservation.warned_min == last
    if last is None or (warned and draft.now >= (reservation.warned_at or 0) + limits.grace_s):
        draft.move(reservation, Event.EXPIRE, "idle" if end_at == reservation.idle_at else "its time is over")


def _prepare_limit(draft: Draft, reservation: Reservation) -> None:
    limit = draft.book.site.limits.prepare_limit_s
    if draft.now >= reservation.since_at + limit:
        missing = [slot.node for slot in reservation.slots if slot.node not in reservation.ready]
        draft.move(reservation, Event.FAIL, f"{', '.join(missing)} was not ready within {limit} s")


def _stuck(draft: Draft, reservation: Reservation) -> None:
    """A node that answers but is not cleared leaves the pool; the reservation must not hold the others for ever."""
    limits = draft.book.site.limits
    if draft.now < reservation.since_at + limits.stuck_factor * limits.clear_limit_s:
        return
    stuck = [slot.node for slot in reservation.slots if slot.node not in reservation.cleared]
    for name in stuck:
        node = draft.book.nodes[name]
        draft.put(replace(node, state=NodeState.CLEANING, fence=node.fence + 1))
        draft.note("take out of the pool", name, f"not cleared of {reservation.id}", str(node.state), "cleaning")
    draft.finish(reservation, f"{reservation.reason}; {', '.join(stuck)} could not be cleared")


def _waited(draft: Draft, reservation: Reservation) -> None:
    limit = draft.book.site.limits.longest_wait_s
    if draft.now >= reservation.submitted_at + limit:
        draft.move(reservation, Event.FAIL, f"it waited for {limit // 86400} days")


def _nothing(_: Draft, __: Reservation) -> None:
    """States without a limit."""


_RULES = {
    State.QUEUED: _waited,
    State.PREPARING: _prepare_limit,
    State.ACTIVE: _expire,
    State.ENDING: _stuck,
}
