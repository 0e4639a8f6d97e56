"""States of nodes that their answers show: silent, in doubt, in use without a session, closed for whole sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gpuctl.core.errors import GpuctlError
from gpuctl.reservations.agent import NotObeyed, Unable
from gpuctl.reservations.decisions import Decisions
from gpuctl.reservations.fan_out import on_all
from gpuctl.reservations.rules import reconcile, reports
from gpuctl.reservations.rules.model import Node, NodeState
from gpuctl.reservations.rules.reconcile import Observation
from gpuctl.reservations.rules.reports import Order, OrderKind

REREAD_S = 60  # between two readings of nodes in doubt


class NodeStates:
    """Conditions of nodes by their last answers. All methods but `read_again` need the lock of decisions.

    `doubts`: nodes that take no new session, and why; sessions on them end as usual. `reread`: reads such a node again;
    None if nothing can have changed. OSError or `GpuctlError` says why it is still in doubt.
    """

    def __init__(
        self, decisions: Decisions, doubts: Mapping[str, str] | None, reread: Callable[[str], Node] | None
    ) -> None:
        self._decisions, self._reread = decisions, reread
        self.doubts = dict(doubts or {})
        self._reread_at = decisions.clock() + REREAD_S
        self.silence: dict[str, str] = {}  # node -> why it gave no answer the last time
        self.no_whole: dict[str, str] = {}  # node -> why it takes no session of all of its GPUs
        self.silent_since: dict[str, int] = {}  # nodes that cannot be asked, whatever the cause
        self._away_since: dict[str, int] = {}  # those of them that do not answer
        self._open_by: dict[str, str] = {}  # node -> a program that has a GPU open without a session

    def compare(self, name: str, observation: Observation | Exception, fence: int) -> Sequence[Order]:
        """Compare a node's sessions with the ledger; orders to end those that should not exist."""
        if isinstance(observation, Exception):
            # Else it has got newer orders since, and refuses this one.
            if fence == self._decisions.load().nodes[name].fence:
                self.silent(name, observation)
            return ()
        self.silent_since.pop(name, None)
        self._away_since.pop(name, None)
        self.silence.pop(name, None)
        self._open_by.pop(name, None)
        self.no_whole.pop(name, None)
        if observation.no_whole:
            self.no_whole[name] = observation.no_whole
        if observation.closed:
            self.in_use(name, observation.closed)
        elif observation.open_by:
            more = f", and {len(observation.open_by) - 1} more" if len(observation.open_by) > 1 else ""
            self.in_use(name, f"{observation.open_by[0]}{more}; end it first")
        self._decisions.decide("nodes", lambda draft: reports.node_back(draft, name))
        return self._decisions.decide("reconciler", lambda draft: reconcile.compare(draft, {name: observation}))

    def in_use(self, name: str, reason: str) -> None:
        """A program has a GPU open without a session: the node takes none, and who waits for it waits elsewhere."""
        self._open_by[name] = reason
        self._decisions.decide("nodes", lambda draft: reports.node_in_use(draft, name, reason))

    def silent(self, name: str, error: Exception) -> None:
        """A node is unknown. It is lost only if it does not answer at all for long enough."""
        reason, now = str(error), self._decisions.clock()
        self.silent_since.setdefault(name, now)
        self.silence[name] = reason
        if isinstance(error, NotObeyed | Unable):
            self._away_since.pop(name, None)
            return
        since, state = self._away_since.setdefault(name, now), self._decisions.load().nodes[name].state
        if now - since >= self._lost_s and state is not NodeState.LOST:
            self._decisions.decide("nodes", lambda draft: reports.node_lost(draft, name, reason))

    def read_again(self) -> None:
        """Read the nodes whose first answer was bad once more, now and then: a repaired one takes sessions again."""
        if self._reread is None or not self.doubts or self._decisions.clock() < self._reread_at:
            return
        reread = self._reread

        def read(name: str) -> Node:
            try:
                return reread(name)
            except GpuctlError as error:
                raise Unable(error.wrong) from error

        for name, node in on_all(list(self.doubts), read).items():
            with self._decisions.lock:
                if isinstance(node, Exception):
                    self.doubts[name] = str(node)
                elif self._decisions.decide("nodes", partial(reports.node_read, node=node)):
                    del self.doubts[name]
                else:
                    self.doubts[name] = f"{name}: it has other GPUs than before: restart the service"
        self._reread_at = self._decisions.clock() + REREAD_S

    def may_send(self, order: Order) -> bool:
        """True unless the node is silent, or is to prepare a session although it is in doubt."""
        doubtful = order.kind is OrderKind.PREPARE and order.node in self.doubtful
        return order.node not in self.silent_since and not doubtful

    @property
    def unknown(self) -> set[str]:
        """Silent nodes, and those in doubt."""
        return {*self.silent_since, *self.doubtful}

    @property
    def doubtful(self) -> dict[str, str]:
        """Nodes that take no new session, and why."""
        return {**self._open_by, **self.doubts}

    def reason(self, name: str) -> str:
        """Why a node takes no session, or not every one; "" if nothing is known against it."""
        return self.silence.get(name) or self.doubtful.get(name) or self.no_whole.get(name, "")

    def unknown_until(self) -> dict[str, int]:
        """Unknown nodes, and the instant until which they are taken as occupied."""
        return {name: self.silent_since.get(name, self._decisions.clock()) + self._lost_s for name in self.unknown}

    @property
    def _lost_s(self) -> int:
        return self._decisions.load().site.limits.node_lost_s
