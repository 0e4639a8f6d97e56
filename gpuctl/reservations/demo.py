"""A day on two simulated nodes with a clock of its own: the service, the rules and a store, without hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.reservations.agent import Delivery, NodeSession, NotObeyed, PodValues
from gpuctl.reservations.rules.idle import Use
from gpuctl.reservations.rules.model import HOUR, Caller, Limits, Node, Site
from gpuctl.reservations.rules.reconcile import Observation, Session
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.base import Store
from gpuctl.reservations.stores.memory import MemoryStore

START = 1_767_600_000 // 86_400 * 86_400 + 8 * HOUR  # eight o'clock UTC
STEP_S = 60


class SimulatedNode:
    """A node without GPUs: it keeps sessions in memory, and can be unplugged."""

    def __init__(self, name: str) -> None:
        self.name, self.reachable = name, True
        self.warnings: list[str] = []
        self.uses = Use(0.0, 1)
        self.people: dict[str, tuple[str, ...]] = {}  # reservation -> who has access beside the owner
        self._fence, self._sessions = 0, dict[str, Session]()

    def obey(
        self, order: Order, person: str, variables: Mapping[str, str] | None = None, _: PodValues | None = None
    ) -> None:
        self._check(order.fence)
        if order.kind is OrderKind.PREPARE:
            self._sessions[order.reservation] = Session(order.reservation, order.attempt, order.gpus)
        elif order.kind is OrderKind.ACCESS:
            self.people[order.reservation] = order.people
        elif order.kind is OrderKind.CLEAR:
            self._sessions.pop(order.reservation, None)
        else:
            self._sessions = {i: s for i, s in self._sessions.items() if (i, s.attempt) in order.keep}

    def observe(self, fence: int) -> Observation:
        self._check(fence)
        return Observation(self.name, fence, list(self._sessions.values()))

    def use(self, sessions: Sequence[NodeSession]) -> Mapping[str, Use]:
        if not self.reachable:
            raise OSError("no answer")
        return {one.reservation: self.uses for one in sessions}

    def warn(self, person: str, text: str) -> Delivery:
        self.warnings.append(f"{person}: {text}")
        return Delivery(1)

    def _check(self, fence: int) -> None:
        if not self.reachable:
            raise OSError("no answer")
        if fence < self._fence:
            raise NotObeyed("an order that is too old")
        self._fence = fence


class Demo:
    """The service with a clock that the story moves."""

    def __init__(self, store: Store | None = None) -> None:
        nodes = [Node(f"gpu-{number}", "h100", (None,) * 8) for number in (1, 2)]
        self.now = START
        self.nodes = {node.name: SimulatedNode(node.name) for node in nodes}
        self.store = store or MemoryStore(Site(Limits(gpus_per_person=16)), nodes)
        self.service = Service(self.store, dict(self.nodes), lambda: self.now)
        self._keys = 0
        self._shown = 0

    def story(self) -> Iterator[str]:
        """Lines of a day: what people do, and what the service decides with its reasons."""
        yield from self.ask("ada", "reserves 8 GPUs for 4 hours", {"gpus": 8, "length_s": 4 * HOUR})
        yield from self.ask("bob", "reserves 16 GPUs for 2 hours", {"gpus": 16, "length_s": 2 * HOUR})
        yield from self.ask("cy", "reserves 8 GPUs for 1 hour", {"gpus": 8, "length_s": HOUR})
        yield from self.ask("dee", "reserves 4 GPUs for 10 hours", {"gpus": 4, "length_s": 10 * HOUR})
        yield from self.queue()
        yield from self.pass_time(2 * HOUR)
        mine = next(row["id"] for row in self.state()["reservations"] if row["person"] == "ada")
        extension = {"reservation": mine, "seconds": 3 * HOUR}
        yield from self.ask("ada", "asks for 3 hours more", extension, verb="extend")
        yield from self.ask("cy", "tries to cancel ada's reservation", {"reservation": mine}, verb="cancel")
        yield from self.pass_time(3 * HOUR)
        yield self._line("somebody unplugs gpu-2")
        self.nodes["gpu-2"].reachable = False
        yield from self.pass_time(HOUR // 2)
        self.nodes["gpu-2"].reachable = True
        yield self._line("gpu-2 answers again")
        yield from self.pass_time(14 * HOUR)
        yield from self.queue()

    def ask(self, person: str, text: str, content: dict[str, object], verb: str = "submit") -> Iterator[str]:
        self._keys += 1
        field = "request" if verb == "submit" else "command"
        call = {"do": verb, "key": f"demo-{self._keys:04}", field: content}
        answer = self.service.answer(Caller(person, person), call)
        yield self._line(f"{person} {text}" + (f": {answer['error']} ({answer['hint']})" if "error" in answer else ""))
        yield from self._decisions()

    def pass_time(self, seconds: int) -> Iterator[str]:
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_S
            self.service.pass_once()
            yield from self._decisions()

    def queue(self) -> Iterator[str]:
        waiting = [row for row in self.state()["reservations"] if row["position"]]
        for row in waiting:
            start = f"{row['earliest_start'] or 'unknown'} to {row['latest_start'] or 'unknown'}"
            yield self._line(
                f"  waits: {row['position']}. {row['person']}, {row['gpus']} GPUs, {start}: {row['reason']}"
            )
        if not waiting:
            yield self._line("  nobody waits")

    def state(self) -> dict[str, Any]:
        return self.service.answer(Caller("ada", "ada"), {"do": "state"})

    def _decisions(self) -> Iterator[str]:
        """Audit entries since the last call."""
        entries = self.store.history(None, 10**6)
        fresh, self._shown = list(entries)[: len(entries) - self._shown][::-1], len(entries)
        for entry in fresh:
            row = self.store.reservation(entry.subject)
            owner = f" of {row.person}" if row is not None else ""
            after = f" -> {entry.after}" if entry.after and not entry.after.isdecimal() else ""
            yield self._line(f"  {entry.action} {entry.subject}{owner}{after}: {entry.reason}")

    def _line(self, text: str) -> str:
        day, minutes = divmod((self.now - START + 8 * HOUR) // 60, 24 * 60)
        return f"day {day + 1} {minutes // 60:02}:{minutes % 60:02}  {text}"
