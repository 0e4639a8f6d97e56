"""Orders to nodes: what the rows demand, sent to all nodes at the same time, and their reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gpuctl.reservations.agent import InUse, NodeAgent, NotObeyed, NotReady, NoWhole, PodValues
from gpuctl.reservations.decisions import Decisions
from gpuctl.reservations.fan_out import attempt, on_all
from gpuctl.reservations.node_states import NodeStates
from gpuctl.reservations.rules import access, expiry, gang, plan, reports
from gpuctl.reservations.rules.model import Book, Reservation
from gpuctl.reservations.rules.reports import Order, OrderKind


class OrderWork:
    """Ends, plans and orders. One thread at a time sends orders, in the order of the decisions; another one leaves its
    own to it.
    """

    def __init__(self, decisions: Decisions, agents: Mapping[str, NodeAgent], nodes: NodeStates) -> None:
        self._decisions, self._agents, self._nodes = decisions, agents, nodes
        self.sending = threading.Lock()
        self._left_orders = False  # by a thread that did not wait for the one that sends
        self.progress: dict[str, dict[str, str]] = {}  # reservation -> node -> what its preparation waits for
        self.revision = 0  # of `progress`
        self.waiting = False  # a node has not ended with an order

    def advance(self) -> None:
        """End, plan and order; again while orders change rows, or another thread has left some.

        Without agents nothing is planned or ordered: the service that has them knows which nodes are silent.
        """
        if not self._agents:
            self._decisions.decide("expiry", expiry.tick)
            return
        for _ in range(4):
            with self._decisions.lock:
                self._decisions.decide("expiry", expiry.tick)
                silent, no_whole = self._nodes.unknown_until(), tuple(self._nodes.no_whole)
                self._decisions.decide("planner", partial(plan.plan, silent=silent, no_whole=no_whole))
            if not self.sending.acquire(blocking=False):
                self._left_orders = True
                return
            try:
                self._left_orders = False
                changed = self._give_orders()
            finally:
                self.sending.release()
            if not changed and not self._left_orders:
                return

    def _give_orders(self) -> bool:
        """Send what nodes have to do, to all nodes at the same time; True if rows changed."""
        with self._decisions.lock:
            due = [order for order in reports.orders(self._decisions.load()) if self._nodes.may_send(order)]
            tasks = [(order, self.task(order)) for order in due]
        return self.send(tasks)

    def send(self, tasks: Sequence[tuple[Order, Callable[[], Exception | None]]]) -> bool:
        """Carry out orders, of each node one after another, and take the reports; True if rows changed."""
        nodes = list(dict.fromkeys(order.node for order, _ in tasks))
        failures: dict[Order, Exception | None] = {}

        def work(node: str) -> None:
            for order, task in tasks:
                if order.node == node:
                    failures[order] = task()
                    if isinstance(failures[order], OSError):  # each further try would take its time, too
                        return

        on_all(nodes, work)
        self.waiting = any(isinstance(failure, NotReady) for failure in failures.values())
        with self._decisions.lock:  # all of them are taken, also after the first that changed something
            changed = [self._report(order, failures[order]) for order, _ in tasks if order in failures]
        return any(changed)

    def task(self, order: Order) -> Callable[[], Exception | None]:
        """A function that sends an order and returns why it failed; it needs no rows, so any thread may call it."""
        row = self._decisions.store.reservation(order.reservation) if order.reservation else None
        person, variables = "" if row is None else row.person, dict[str, str]()
        if row is not None and order.kind is OrderKind.PREPARE:
            variables = gang.environment(row, self._decisions.load().nodes, order.node)
        pod = None if row is None else _pod_values(row, order.node, self._decisions.load())

        def send() -> Exception | None:
            return attempt(lambda: self._agents[order.node].obey(order, person, variables, pod))

        return send

    def _report(self, order: Order, failure: Exception | None) -> bool:
        """Take the report of an order; True if rows changed. Without an answer it is given again in the next pass."""
        if order.kind is OrderKind.ACCESS:
            return self._report_access(order, failure)
        if order.kind is OrderKind.PREPARE and isinstance(failure, NotObeyed):
            return self._report_refusal(order, failure)
        if order.kind is OrderKind.PREPARE:
            self._note_progress(order, failure)
        if isinstance(failure, OSError):  # nothing more is sent to it before it answers: each try takes its time
            self._nodes.silent(order.node, failure)
        if failure is not None:
            return False
        ids = order.reservation, order.attempt, order.node
        if order.kind is OrderKind.PREPARE:
            self._decisions.decide("nodes", lambda draft: reports.session_ready(draft, *ids))
        elif order.kind is OrderKind.CLEAR:
            self._decisions.decide("nodes", lambda draft: reports.session_cleared(draft, *ids))
        else:
            self._decisions.decide("nodes", lambda draft: reports.node_clean(draft, order.node, order.fence))
        return True

    def _report_refusal(self, order: Order, refusal: NotObeyed) -> bool:
        """Take the refusal to prepare a session."""
        reason, ids = str(refusal), (order.reservation, order.attempt, order.node)
        if isinstance(refusal, InUse):
            self._nodes.in_use(order.node, reason)
        elif isinstance(refusal, NoWhole):
            self._nodes.no_whole[order.node] = reason
            self._decisions.decide("nodes", lambda draft: reports.session_refused(draft, *ids, reason))
        else:
            self._decisions.decide("nodes", lambda draft: reports.session_failed(draft, *ids, reason))
        return True

    def _report_access(self, order: Order, failure: Exception | None) -> bool:
        """Take the report of an order that gives access; nothing else follows from it. It is given until it is done."""
        which: dict[str, Any] = {"id_": order.reservation, "access": order.access, "node": order.node}
        if failure is None:
            self._decisions.decide("nodes", lambda draft: access.granted(draft, **which))
        elif isinstance(failure, OSError):
            self._nodes.silent(order.node, failure)
        else:
            self._decisions.decide("nodes", lambda draft: access.delayed(draft, **which, reason=str(failure)))
        return False

    def _note_progress(self, order: Order, failure: Exception | None) -> None:
        waits = self.progress.setdefault(order.reservation, {})
        waits.pop(order.node, None)
        if isinstance(failure, NotReady):
            waits[order.node] = str(failure)
        self.revision += 1  # the rows of the database are the same
        live = self._decisions.load().reservations
        self.progress = {id_: texts for id_, texts in self.progress.items() if texts and id_ in live}


def _pod_values(row: Reservation, name: str, book: Book) -> PodValues:
    """Values of a pod of a session on one of its nodes."""
    disk, node = book.disks.get(row.disk or ""), book.nodes.get(name)
    slot = next((slot for slot in row.slots if slot.node == name), None)
    return PodValues(
        gang.pod_name(row, name),
        access.session_keys(row),
        row.image,
        disk.volume_id if disk else row.disk or "",
        row.id if len(row.slots) > 1 else "",
        row.jupyter,
        disk_made=disk is not None and disk.made,
        efa=gang.adapters(node, slot) if node and slot else 0,
    )
