"""Calls about sessions that are pods: logins, connections and logs. Nodes are asked without the lock of decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.reservations.agent import NodeAgent, NotObeyed, PodAgent
from gpuctl.reservations.calls import nothing_left
from gpuctl.reservations.rules.model import Caller, Reservation, State

STARTED = (State.PREPARING, State.ACTIVE, State.ENDING)  # states with a pod


class PodCalls:
    """Answers calls about pods. `reservation`: a live reservation by its id, or None."""

    def __init__(self, reservation: Callable[[str], Reservation | None], agents: Mapping[str, NodeAgent]) -> None:
        self._reservation, self._agents = reservation, agents

    def login(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Values for ssh of a session that is a pod, as `PodLogin`."""
        doing = "log in to a reservation"
        id_, name = content.pop("reservation", None), content.pop("node", None)
        nothing_left(content)
        row, agent = self._pod(caller, doing, id_, name)
        with _as_answer(doing):
            return asdict(agent.login(row.id, row.attempt))

    def tunnel(self, caller: Caller, content: Mapping[str, Any]) -> Callable[[int], None]:
        """Connect to the sshd of the caller's session; a function that copies from and to a socket until one closes."""
        doing = "log in to a reservation"
        row, agent = self._pod(caller, doing, content.get("reservation"), content.get("node"))
        with _as_answer(doing):
            return agent.tunnel(row.id, row.attempt)

    def logs(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Events and last lines of the log of a session that is a pod, also while it starts."""
        doing = "read the log of a reservation"
        id_, name = content.pop("reservation", None), content.pop("node", None)
        nothing_left(content)
        row, agent = self._pod(caller, doing, id_, name, STARTED)
        with _as_answer(doing):
            return {"lines": list(agent.logs(row.id, row.attempt))}

    def _pod(
        self, caller: Caller, doing: str, id_: Any, name: Any, states: Collection[State] = (State.ACTIVE,)
    ) -> tuple[Reservation, PodAgent]:
        """A reservation of the caller in these states, and its node; not even an admin reaches another one's.

        Whom the owner has added reaches it, too.
        """
        row = self._reservation(id_) if isinstance(id_, str) else None
        if row is None:
            raise InvalidInput(doing, f"no live reservation has the id {id_!r}", "`gpuctl reservations list`")
        if caller.person not in row.people:
            raise InvalidInput(doing, f"it belongs to {row.person}, and you are {caller.person}", "ask its owner")
        names = [slot.node for slot in row.slots]
        if row.state not in states or name not in names:
            wrong = f"reservation {row.id} is {row.state}" + (f" on {', '.join(names)}" if names else "")
            raise InvalidInput(doing, wrong, "`gpuctl reservations show` prints its state")
        agent = self._agents[name]
        if not isinstance(agent, PodAgent):
            raise InvalidInput(doing, f"sessions of {name} are accounts of that host", "log in by ssh")
        return row, agent


@contextmanager
def _as_answer(doing: str) -> Iterator[None]:
    """Errors of a node as those of the call."""
    try:
        yield
    except (OSError, NotObeyed) as error:
        raise GpuctlError(doing, str(error), "`gpuctl reservations show` prints its state") from error
