"""Orders to nodes, and reports from them. Both may be late, doubled, lost or out of order.

Orders follow from the rows alone, so that a lost one is sent again; a node ignores those with an old fence. Reports
name the attempt they are about, and are ignored if it is not the present one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Book, Node, NodeState, Reservation, State
from gpuctl.reservations.rules.state_machine import HOLDING, Event


class OrderKind(StrEnum):
    PREPARE = "prepare"
    CLEAR = "clear"
    ACCESS = "give access"
    CLEAN_NODE = "clean node"
    OBSERVE = "observe"


@dataclass(frozen=True)
class Order:
    """A task for a node. `fence`: the node obeys if it knows none that is higher, and remembers this one.

    `keep`: reservations and attempts whose sessions go on while a node is cleaned. `access`: as in `Reservation`;
    `people`: who has access beside the owner.
    """

    kind: OrderKind
    node: str
    fence: int
    reservation: str = ""
    attempt: int = 0
    gpus: tuple[int, ...] = ()
    keep: tuple[tuple[str, int], ...] = ()
    access: int = 0
    people: tuple[str, ...] = ()


def orders(book: Book) -> list[Order]:
    """Everything that nodes still have to do, by the rows of now."""
    todo = [
        Order(OrderKind.CLEAN_NODE, node.name, node.fence, keep=_in_time(book, node.name))
        for node in book.nodes.values()
        if node.state is NodeState.CLEANING
    ]
    for reservation in book.in_state(State.PREPARING, State.ENDING):
        preparing = reservation.state is State.PREPARING
        done = reservation.ready if preparing else reservation.cleared
        kind = OrderKind.PREPARE if preparing else OrderKind.CLEAR
        todo += [
            Order(kind, slot.node, book.nodes[slot.node].fence, reservation.id, reservation.attempt, slot.gpus)
            for slot in reservation.slots
            if slot.node not in done and book.nodes[slot.node].state is NodeState.READY
        ]
    return [*todo, *_access_orders(book)]


def _access_orders(book: Book) -> list[Order]:
    """Orders that give sessions to the people of now; who is added before the session is ready gets it then."""
    return [
        Order(
            OrderKind.ACCESS,
            slot.node,
            book.nodes[slot.node].fence,
            row.id,
            row.attempt,
            slot.gpus,
            access=row.access,
            people=row.people[1:],
        )
        for row in book.in_state(State.ACTIVE)
        for slot in row.slots
        if slot.node in row.without_access and book.nodes[slot.node].state is NodeState.READY
    ]


def _in_time(book: Book, node: str) -> tuple[tuple[str, int], ...]:
    """Sessions of a node whose time is not over, by reservation and attempt."""
    return tuple(
        (reservation.id, reservation.attempt)
        for reservation in book.in_state(State.ACTIVE)
        if node in {slot.node for slot in reservation.slots}
    )


def observations(book: Book) -> list[Order]:
    """Orders to report all sessions; they carry the fence, so that an answer is as new as the row."""
    usable = [node for node in book.nodes.values() if node.state is not NodeState.LOST]
    return [Order(OrderKind.OBSERVE, node.name, node.fence) for node in usable]


def session_ready(draft: Draft, id_: str, attempt: int, node: str) -> None:
    """A node of the reservation is prepared; with the last one the reservation is active and its time begins."""
    reservation = _current(draft.book, id_, attempt, node, State.PREPARING)
    if reservation is None or node in reservation.ready:
        return
    ready = tuple(sorted({*reservation.ready, node}))
    if len(ready) < len(reservation.slots):
        draft.put(replace(reservation, ready=ready))
        return
    expires_at = draft.now + reservation.length_s
    draft.move(reservation, Event.READY, "all nodes are ready", ready=ready, active_at=draft.now, expires_at=expires_at)


def session_failed(draft: Draft, id_: str, attempt: int, node: str, reason: str) -> None:
    """A node could not prepare the session."""
    if reservation := _current(draft.book, id_, attempt, node, State.PREPARING):
        draft.move(reservation, Event.FAIL, f"{node}: {reason}")


def session_refused(draft: Draft, id_: str, attempt: int, node: str, reason: str) -> None:
    """A node does not prepare the session, for a reason of its site: the request is queued again, however often."""
    if reservation := _current(draft.book, id_, attempt, node, State.PREPARING):
        draft.move(reservation, Event.RETRY, f"{node}: {reason}")


def node_in_use(draft: Draft, name: str, reason: str) -> None:
    """A node takes no session: requests that are not prepared there are queued again, however often.

    A program without a session has a GPU open, or its cluster refuses; no fault of who waits.
    """
    for reservation in draft.book.in_state(State.PREPARING):
        if name in {slot.node for slot in reservation.slots} - set(reservation.ready):
            draft.move(reservation, Event.RETRY, f"{name}: {reason}")


def session_cleared(draft: Draft, id_: str, attempt: int, node: str) -> None:
    """Nobody has access on this node any more; with the last one the GPUs return to the ledger."""
    reservation = _current(draft.book, id_, attempt, node, State.ENDING)
    if reservation is None:
        return
    draft.put(replace(reservation, cleared=tuple(sorted({*reservation.cleared, node}))))
    _finish_if_cleared(draft, id_)


def session_gone(draft: Draft, id_: str, attempt: int, node: str, why: str = "") -> None:
    """An active session does not exist on its node any more. `why`: reason of the node, "" if it gives none."""
    if reservation := _current(draft.book, id_, attempt, node, State.ACTIVE):
        reason = f"the session on {node} is over: {why}" if why else f"the session disappeared from {node}"
        draft.move(reservation, Event.FAIL, reason)


def node_lost(draft: Draft, name: str, reason: str) -> None:
    """A node does not answer: it leaves the pool. Active sessions on it may run on, so they keep their time and GPUs.

    Requests whose node was prepared are queued again.
    """
    node = draft.book.nodes[name]
    if node.state is NodeState.LOST:
        return
    draft.put(replace(node, state=NodeState.LOST, fence=node.fence + 1))
    draft.note("lose node", name, reason, str(node.state), str(NodeState.LOST))
    for reservation in draft.book.in_state(*HOLDING):
        if name in {slot.node for slot in reservation.slots}:
            _lose(draft, reservation, name)


def clear_lost(draft: Draft) -> None:
    """Sessions that end while their node is lost: it is cleaned before it takes anybody, so nothing is waited for."""
    for reservation in draft.book.in_state(State.ENDING):
        lost = {slot.node for slot in reservation.slots if draft.book.nodes[slot.node].state is NodeState.LOST}
        if lost - set(reservation.cleared):
            draft.put(replace(reservation, cleared=tuple(sorted({*reservation.cleared, *lost}))))
            _finish_if_cleared(draft, reservation.id)


def _lose(draft: Draft, reservation: Reservation, name: str) -> None:
    if reservation.state is State.ACTIVE:
        return
    if reservation.state is State.PREPARING and reservation.attempt < draft.book.site.limits.most_attempts:
        draft.move(reservation, Event.RETRY, f"{name} was lost before the session was ready")
    elif reservation.state is not State.ENDING:
        draft.move(reservation, Event.FAIL, f"{name} was lost")
    reservation = draft.book.reservations[reservation.id]
    # The node is cleaned as a whole before it takes anybody again, so that there is nothing to wait for.
    draft.put(replace(reservation, cleared=tuple(sorted({*reservation.cleared, name}))))
    _finish_if_cleared(draft, reservation.id)


def node_back(draft: Draft, name: str) -> None:
    """A lost node answers again; it takes reservations once nothing of a session that is over is left."""
    node = draft.book.nodes[name]
    if node.state is NodeState.LOST:
        draft.put(replace(node, state=NodeState.CLEANING, fence=node.fence + 1))
        draft.note("clean node", name, "it answers again", str(node.state), str(NodeState.CLEANING))


def node_read(draft: Draft, node: Node) -> bool:
    """Take what was read of a node again; False if it is not the node that it was, and nothing is taken."""
    known = draft.book.nodes[node.name]
    others = {uuid for other in draft.book.nodes.values() if other.name != node.name for uuid in other.uuids}
    same = (known.gpu_type, len(known.allocated)) == (node.gpu_type, len(node.allocated))
    if not same or others & set(node.uuids):
        return False
    draft.put(replace(known, uuids=node.uuids, address=node.address, port=node.port))
    draft.note("take node", node.name, "its GPUs were read again, and can be shared")
    return True


def node_clean(draft: Draft, name: str, fence: int) -> None:
    """A node reports that it has no session that is over, in answer to the order with this fence."""
    node = draft.book.nodes[name]
    if node.state is NodeState.CLEANING and fence == node.fence:
        draft.put(replace(node, state=NodeState.READY))
        draft.note(
            "take into the pool", name, "no session that is over is left on it", str(node.state), str(NodeState.READY)
        )


def _finish_if_cleared(draft: Draft, id_: str) -> None:
    reservation = draft.book.reservations[id_]
    if {slot.node for slot in reservation.slots} <= set(reservation.cleared):
        draft.finish(reservation, reservation.reason)


def _current(book: Book, id_: str, attempt: int, node: str, state: State) -> Reservation | None:
    """The reservation, if a report about this attempt on this node still matters in its state."""
    reservation = book.reservations.get(id_)
    if reservation is None or reservation.state is not state or reservation.attempt != attempt:
        return None
    return reservation if node in {slot.node for slot in reservation.slots} else None
