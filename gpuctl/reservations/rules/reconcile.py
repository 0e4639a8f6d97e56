"""Compare ledger, reservations, disks, nodes and clock, and repair what differs, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuctl.reservations.rules import ledger, reports
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import DAY, Node, NodeState, Reservation, State
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.rules.state_machine import HOLDING, Event


@dataclass(frozen=True)
class Session:
    """A session that exists on a node."""

    reservation: str
    attempt: int
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Observation:
    """Sessions of one node at one time; `fence` is the highest that the node knew then.

    `open_by`: programs that have a GPU open without a session. `closed`: another reason why it takes no session.
    `ends`: reservation -> why its session is over. `no_whole`: why it takes no session of all of its GPUs.
    """

    node: str
    fence: int
    sessions: Sequence[Session]
    open_by: Sequence[str] = ()
    closed: str = ""
    ends: Mapping[str, str] = field(default_factory=dict)
    no_whole: str = ""


def repair(draft: Draft) -> None:
    """Repair rows that contradict each other, as after a restored backup or an edit by hand."""
    if draft.book.clock.at > 0:
        _repair_clock(draft)
    for node in list(draft.book.nodes.values()):
        _repair_node(draft, node)
    for reservation in draft.book.in_state(*HOLDING):
        _repair_reservation(draft, reservation)
    reports.clear_lost(draft)
    for disk in list(draft.book.disks.values()):
        holder = draft.book.reservations.get(disk.attached or "")
        if disk.attached is not None and (holder is None or holder.state not in HOLDING):
            draft.put(replace(disk, attached=None))
            draft.note("repair disk", disk.name, f"attached to {disk.attached}, which holds nothing")


def _repair_clock(draft: Draft) -> None:
    """An end beyond what any limit allows was written by a wrong clock."""
    limits = draft.book.site.limits
    for reservation in draft.book.in_state(State.ACTIVE):
        latest_at = draft.now + limits.longest_extended_s + DAY
        if reservation.expires_at is not None and reservation.expires_at > latest_at:
            expires_at = draft.now + reservation.length_s
            draft.put(replace(reservation, expires_at=expires_at, active_at=draft.now))
            reason = "its end was later than any limit allows"
            draft.note("repair end", reservation.id, reason, str(reservation.expires_at), str(expires_at))


def _repair_node(draft: Draft, node: Node) -> None:
    for holder in sorted({holder for holder in node.allocated if holder is not None}):
        reservation = draft.book.reservations.get(holder)
        if reservation is None or reservation.state not in HOLDING:
            node = replace(ledger.release(node, holder), state=_cleaned(node))
            draft.put(node)
            node = draft.book.nodes[node.name]
            draft.note("repair ledger", node.name, f"GPUs were allocated to {holder}, which holds nothing")


def _cleaned(node: Node) -> NodeState:
    """A session may still be on it: it is cleaned before it takes another one."""
    return NodeState.LOST if node.state is NodeState.LOST else NodeState.CLEANING


def _repair_reservation(draft: Draft, reservation: Reservation) -> None:
    """The ledger decides: a reservation without its GPUs there ends, since they may be somebody else's."""
    expected = {slot.node: slot.gpus for slot in reservation.slots}
    actual = {slot.node: slot.gpus for slot in ledger.slots_of(draft.book.nodes, reservation.id)}
    if expected == actual or reservation.state is State.ENDING:
        return
    draft.note("repair reservation", reservation.id, f"the ledger has {actual}, the reservation {expected}")
    draft.move(reservation, Event.FAIL, "the ledger does not have its GPUs")


def compare(draft: Draft, observations: Mapping[str, Observation]) -> list[Order]:
    """Repair what nodes show to be different; the result are orders to end sessions that belong to nobody."""
    orders: list[Order] = []
    for name, observation in observations.items():
        node = draft.book.nodes.get(name)
        if node is None or node.state is not NodeState.READY or observation.fence < node.fence:
            continue  # not in the pool, or older than the last change of this node
        orders += _strays(draft, node, observation)
        for reservation in draft.book.in_state(State.ACTIVE):
            exists = (reservation.id, reservation.attempt) in {(s.reservation, s.attempt) for s in observation.sessions}
            if name in {slot.node for slot in reservation.slots} and not exists:
                why = observation.ends.get(reservation.id, "")
                reports.session_gone(draft, reservation.id, reservation.attempt, name, why)
    return orders


def _strays(draft: Draft, node: Node, observation: Observation) -> list[Order]:
    strays = [session for session in observation.sessions if not _belongs(draft, node.name, session)]
    for session in strays:
        node = draft.book.nodes[node.name]
        draft.put(replace(node, fence=node.fence + 1))
        draft.note("end stray session", session.reservation, f"on {node.name} without a reservation")
    fence = draft.book.nodes[node.name].fence
    return [Order(OrderKind.CLEAR, node.name, fence, s.reservation, s.attempt, s.gpus) for s in strays]


def _belongs(draft: Draft, node: str, session: Session) -> bool:
    reservation = draft.book.reservations.get(session.reservation)
    if reservation is None or reservation.state not in HOLDING or reservation.attempt != session.attempt:
        return False
    return any(slot.node == node and set(session.gpus) <= set(slot.gpus) for slot in reservation.slots)
