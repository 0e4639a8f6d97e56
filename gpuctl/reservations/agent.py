"""The promises of a node to the service, and the node that keeps them by visits of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gpuctl.reservations.rules.disks import Volume
from gpuctl.reservations.rules.idle import Use
from gpuctl.reservations.rules.reconcile import Observation, Session
from gpuctl.reservations.rules.reports import Order, OrderKind

Visit = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Unable(OSError):
    """A node answers, but cannot be asked: an order may be carried out, and the node is not lost."""


class NotObeyed(Exception):
    """A node refuses an order; the text says why. Without an answer it is an OSError: the order may be carried out."""


class NotReady(Exception):
    """A node carries out an order, and has not ended with it; the text says what it waits for. It is given again."""


class NoWhole(NotObeyed):
    """A node takes no session of all of its GPUs, but smaller ones; no fault of who waits for it."""


class InUse(NotObeyed):
    """A node refuses a session because programs without one have its GPUs open; no fault of who waits for them."""


@dataclass(frozen=True)
class Delivery:
    """A warning on a node: number of terminals; it is in a file, too. `missed`: why it was not delivered."""

    terminals: int
    missed: str = ""


@dataclass(frozen=True)
class NodeSession:
    """A session on a node: its reservation, account and GPUs by minor number. `people`: accounts beside the owner's."""

    reservation: str
    person: str
    gpus: tuple[int, ...]
    people: tuple[str, ...] = ()


@dataclass(frozen=True)
class PodValues:
    """Values of a session that is a pod, as those of `Reservation`. `disk`: id of its volume, "" for none.

    `disk_made`: the volume has existed. `efa`: number of its EFA adapters. `gang`: name under which the pods of several
    nodes reach each other; "" for one node.
    """

    name: str
    keys: str
    image: str = ""
    disk: str = ""
    gang: str = ""
    jupyter: bool = False
    disk_made: bool = False
    efa: int = 0


@dataclass(frozen=True)
class PodLogin:
    """Values with which ssh reaches a session in a pod. `host_key`: type and base64; `alias`: its name for ssh.

    `token`: of its Jupyter, "" without one.
    """

    port: int
    host_key: str
    alias: str
    token: str = ""


class NodeAgent(Protocol):
    """A node. It remembers the highest fence of its orders, and raises `NotObeyed` for one that is older.

    OSError: it does not answer. An order without an answer is given again.
    """

    def obey(
        self, order: Order, person: str, variables: Mapping[str, str] | None = None, pod: PodValues | None = None
    ) -> None:
        """Give access and the variables of a session (PREPARE) or take them (CLEAR, CLEAN_NODE); done on return.

        ACCESS gives an existing session to `Order.people` beside its owner, and to the keys of `pod`; to nobody else.

        `NotReady` while that lasts. `pod`: where sessions are pods.
        """

    def observe(self, fence: int) -> Observation:
        """Sessions that exist. OSError or `NotObeyed` if the node cannot be read."""

    def use(self, sessions: Sequence[NodeSession]) -> Mapping[str, Use]:
        """Use of sessions by their reservations. OSError or `NotObeyed` if it cannot be read."""

    def warn(self, person: str, text: str) -> Delivery:
        """Show a warning on the person's terminals, and write it to a file."""


@runtime_checkable
class PodAgent(NodeAgent, Protocol):
    """A node whose sessions are pods."""

    def login(self, reservation: str, attempt: int) -> PodLogin:
        """Values for ssh. OSError or `NotObeyed` if they cannot be read."""

    def logs(self, reservation: str, attempt: int) -> Sequence[str]:
        """Events of a session, and the last lines of its log. OSError or `NotObeyed` if they cannot be read."""

    def tunnel(self, reservation: str, attempt: int) -> Callable[[int], None]:
        """Connect to the sshd of a session; a function that copies from and to a socket until either side closes.

        OSError or `NotObeyed` if it is not reached.
        """


class DiskAgent(Protocol):
    """Volumes of disks. Each step may be repeated; `NotReady` while it lasts, OSError or `NotObeyed` if it fails."""

    def volumes(self) -> Sequence[Volume]:
        """Volumes that were made for disks of this service."""

    def make(self, volume: str, person: str) -> None:
        """An empty volume."""

    def copy(self, volume: str, person: str, source: str) -> None:
        """A volume with the content that the volume `source` has now."""

    def delete(self, volume: str) -> None:
        """The volume is gone on return, and all of its content."""


class VisitedNode:
    """A host whose sessions the engine keeps (gpuhost/acts/gpu_sessions.py).

    `visit`: carries out the request of one act and returns its answer; OSError if there is none. `always`: more keys of
    every request. `service`: identity of the service; the host obeys one service only. `label` of `always`: its text.
    """

    def __init__(self, name: str, gpus: int, service: str, visit: Visit, always: Mapping[str, Any]) -> None:
        self.name, self._visit = name, visit
        self._always = {"action": "act", "act": "gpu sessions", "service": service, "gpus": gpus, **always}

    def obey(
        self,
        order: Order,
        person: str,
        variables: Mapping[str, str] | None = None,
        pod: PodValues | None = None,
    ) -> None:
        if order.kind is OrderKind.PREPARE:
            session = {"session": order.reservation, "attempt": order.attempt, "devices": list(order.gpus)}
            self._ask("prepare", fence=order.fence, **session, person=person, variables=dict(variables or {}))
        elif order.kind is OrderKind.ACCESS:
            session = {"session": order.reservation, "attempt": order.attempt}
            self._ask("access", fence=order.fence, **session, people=list(order.people))
        elif order.kind is OrderKind.CLEAR:
            self._ask("clear", fence=order.fence, session=order.reservation)
        else:
            self._ask("clean", fence=order.fence, keep=[list(one) for one in order.keep])

    def observe(self, fence: int) -> Observation:
        answer = self._ask("observe", fence=fence)
        rows = answer["sessions"]
        sessions = [Session(row["session"], row["attempt"], tuple(row["devices"])) for row in rows]
        return Observation(self.name, answer["fence"], sessions, tuple(answer["open_by"]))

    def use(self, sessions: Sequence[NodeSession]) -> Mapping[str, Use]:
        rows = [
            {"session": one.reservation, "person": one.person, "people": list(one.people), "devices": list(one.gpus)}
            for one in sessions
        ]
        uses = self._ask("use", sessions=rows)["uses"]
        return {row["session"]: Use(row["gpu_percent"], row["connections"]) for row in uses}

    def warn(self, person: str, text: str) -> Delivery:
        return Delivery(self._ask("warn", person=person, text=text)["terminals"])

    def _ask(self, do: str, **content: Any) -> Mapping[str, Any]:
        about = " ".join(str(content[key]) for key in ("session", "person") if content.get(key))
        answer = self._visit({**self._always, "do": do, "about": f"{do} {about}".strip(), **content})
        if answer["refused"] and answer["open_by"]:
            raise InUse(answer["refused"])
        if answer["refused"]:
            raise NotObeyed(answer["refused"])
        return answer
