"""Random histories of a site: messages late, doubled, lost and out of order; crashes; clock jumps; lost nodes.

Everything follows from the seed. `World.run` raises AssertionError where a promise of the rules is broken.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from gpuctl.reservations.rules import access, commands, disks, expiry, ledger, plan, queue, reconcile, reports
from gpuctl.reservations.rules.commands import Message
from gpuctl.reservations.rules.decision import Decision, Draft
from gpuctl.reservations.rules.model import (
    AuditEntry,
    Book,
    Caller,
    DiskState,
    Limits,
    Node,
    NodeState,
    Receipt,
    Reservation,
    Site,
    State,
)
from gpuctl.reservations.rules.pool import longest_hold_s
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.rules.state_machine import HOLDING, TERMINAL, TRANSITIONS
from gpuctl.reservations.stores.base import Conflict, Store
from gpuctl.reservations.stores.memory import MemoryStore

STEP_S = 10
LIMITS = Limits(
    shortest_s=60,
    longest_s=1800,
    longest_extended_s=3600,
    queued_per_person=6,
    half_life_s=3600,
    longest_wait_s=10**7,
    starving_s=3600,
    warnings_min=(5, 2, 1),
    grace_s=30,
    prepare_limit_s=240,
    clear_limit_s=120,
    pass_s=60,
    stuck_factor=6,
    node_lost_s=60,
)
PEOPLE = (Caller("ada", "vision"), Caller("bob", "vision"), Caller("cy", "speech"), Caller("root", "ops", admin=True))


@dataclass(frozen=True)
class Faults:
    """Probabilities. `lost` to `doubled` are per message, the others per step."""

    lost: float = 0.0
    doubled: float = 0.0
    latest_s: int = STEP_S  # delay of a message
    crash: float = 0.0
    stale: float = 0.0
    node: float = 0.0
    clock: float = 0.0
    setup: float = 0.0


NONE = Faults()
ALL = Faults(lost=0.1, doubled=0.15, latest_s=60, crash=0.1, stale=0.15, node=0.01, clock=0.01, setup=0.02)
SLOW = replace(ALL, latest_s=400)  # messages outlive whole sessions
StoreFactory = Callable[[Site, list[Node]], Store]


class Crash(Exception):
    """The service is killed at this point."""


@dataclass
class Agent:
    """A simulated node: it obeys orders whose fence is not older than the highest that it knows."""

    node: str
    fence: int = 0
    sessions: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    reachable: bool = True
    back_at: int = 0
    silent_since: int | None = None

    def obey(self, order: Order, fails: bool) -> tuple[str, Order] | None:
        if not self.reachable or order.fence < self.fence or self._lacks(order):
            return None
        self.fence = order.fence
        if order.kind is OrderKind.PREPARE:
            if fails:
                return "failed", order
            taken = {gpu for _, gpus in self.sessions.values() for gpu in gpus}
            if order.reservation not in self.sessions:
                assert not taken & set(order.gpus), f"double booking on {self.node}: {order}, {self.sessions}"
                self.sessions[order.reservation] = (order.attempt, order.gpus)
            return "ready", order
        if order.kind is OrderKind.CLEAR:
            self.sessions.pop(order.reservation, None)
            return "cleared", order
        if order.kind is OrderKind.CLEAN_NODE:
            kept = {id_: one for id_, one in self.sessions.items() if (id_, one[0]) in order.keep}
            self.sessions = kept
            return "clean", order
        return ("has access" if order.kind is OrderKind.ACCESS else "observed"), order

    def _lacks(self, order: Order) -> bool:
        """True for an order that gives people a session which does not exist."""
        session = self.sessions.get(order.reservation)
        return order.kind is OrderKind.ACCESS and (session is None or session[0] != order.attempt)


class World:
    """A site, its people, and the service that decides, on a store."""

    def __init__(
        self,
        seed: int,
        faults: Faults = ALL,
        store: StoreFactory = MemoryStore,
        quotas: bool = True,
        agent: Callable[[Node], Agent] = lambda node: Agent(node.name),
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311 - histories, not secrets
        self.faults, self.quotas = faults, quotas
        self.now = 1_000_000
        self.offset = 0
        nodes = self._nodes()
        limits = replace(LIMITS, gpus_per_person=self.random.choice([None, 8, 12])) if quotas else LIMITS
        self.store = store(Site(limits), nodes)
        self.agents = {node.name: agent(node) for node in nodes}
        self.messages: list[tuple[int, int, Callable[[], None]]] = []
        self.sent = 0
        self.answers: dict[str, Receipt] = {}
        self.entries: list[AuditEntry] = []
        self.states: dict[str, State] = {}
        self.rows: dict[str, Reservation] = {}
        self.eligible_s: dict[str, int] = {}
        self.ahead: dict[str, int] = {}
        self.keys: dict[str, Message] = {}
        self.old_book = self.store.load()
        self.last_plan = 0
        self.volumes: set[str] = set()

    def run(self, steps: int = 80) -> World:
        """Some random steps, then time without faults until everything is over."""
        for _ in range(steps):
            self._random_events()
            self._step()
        self.faults = replace(NONE, latest_s=self.faults.latest_s)
        for agent in self.agents.values():
            agent.reachable = True
        for _ in range(2_000):
            self._step(seconds=20)
            book = self.store.load()
            clean = all(node.state is NodeState.READY for node in book.nodes.values())
            if clean and not book.reservations and not self._commands_under_way():
                break
        self._check_end()
        return self

    # ---- what happens ---------------------------------------------------------------------------------------------

    def _nodes(self) -> list[Node]:
        size = self.random.choice([2, 4, 8])
        types = ["h100"] * self.random.randint(1, 4) + ["a100"] * self.random.randint(0, 2)
        zones = ["", "a", "b"] if self.random.random() < 0.3 else [""]
        return [
            Node(f"gpu-{number}", gpu_type, (None,) * size, zone=self.random.choice(zones))
            for number, gpu_type in enumerate(types, 1)
        ]

    def _random_events(self) -> None:
        draw = self.random
        if draw.random() < 0.5:
            self._command()
        if draw.random() < self.faults.clock:
            self.offset += draw.choice([-600, -60, 60, 300, 900])
        for agent in self.agents.values():
            if agent.reachable and draw.random() < self.faults.node:
                agent.reachable, agent.back_at = False, self.now + draw.randint(20, 900)
                if draw.random() < 0.5:  # it booted: its sessions are gone; else only the network was
                    agent.sessions.clear()
            elif not agent.reachable and self.now >= agent.back_at:
                agent.reachable = True

    def _command(self) -> None:
        draw, book = self.random, self.store.load()
        caller = draw.choice(PEOPLE)
        live = sorted(book.reservations)
        largest = max(len(node.allocated) for node in book.nodes.values())
        kind = draw.random()
        command: commands.Command
        if kind < 0.6 or not live:
            gpus = draw.choice([1, 1, 2, largest, largest * 2, 3])
            length_s = draw.choice([60, 120, 300, 600, 1800, 5000])
            disk = draw.choice([None, None, "data"])
            gpu_type = draw.choice(["h100", "H100", "a100"])
            command = commands.Submit(Request(gpus, gpu_type, length_s, disk=disk))
        elif kind < 0.75:
            command = commands.Cancel(draw.choice(live))
        elif kind < 0.95:
            command = commands.Extend(draw.choice(live), draw.choice([60, 600, 1800, -5]))
        elif kind < 0.97:
            command = commands.Edit(draw.choice(live), length_s=draw.choice([60, 600]))
        else:
            command = self._change_of_disk_or_people(draw.choice(live))
        message = Message(command, caller, f"k{self.sent}")
        if self.keys and draw.random() < 0.1:
            message = self.keys[draw.choice(sorted(self.keys))]  # a client that repeats itself
        self.keys[message.key] = message
        self._send(lambda: self._handle(message), redeliver=True)

    def _change_of_disk_or_people(self, live: str) -> commands.Command:
        draw = self.random
        name, other = draw.sample(("data", "models", "old"), 2)
        choices: list[commands.Command] = [
            access.AddUser(live, draw.choice(("ada", "bob", "dee"))),
            disks.CreateDisk(name),
            disks.CloneDisk(name, other),
            disks.RenameDisk(name, other),
            disks.DeleteDisk(name),
        ]
        return draw.choice(choices)

    def _commands_under_way(self) -> bool:
        """True while a command has no answer: its message is delivered at least once."""
        answered = {key.partition(":")[2] for key in self.answers}
        return any(key not in answered for key in self.keys)

    def _send(self, deliver: Callable[[], None], redeliver: bool = False) -> None:
        """Queue a message. With `redeliver` it is at least once: a loss becomes a delay, a crash a second delivery."""
        draw = self.random
        copies = 2 if draw.random() < self.faults.doubled else 1
        if draw.random() < self.faults.lost:
            copies = 1 if redeliver else 0
        for _ in range(copies):
            self.sent += 1

            def guarded(deliver: Callable[[], None] = deliver) -> None:
                try:
                    deliver()
                except Crash:
                    if redeliver:
                        self._send(deliver, redeliver=True)

            heapq.heappush(self.messages, (self.now + draw.randint(0, self.faults.latest_s), self.sent, guarded))

    def _step(self, seconds: int = STEP_S) -> None:
        self.now += seconds
        while self.messages and self.messages[0][0] <= self.now:
            heapq.heappop(self.messages)[2]()
        try:
            self._service()
        except Crash:
            return

    # ---- the service ----------------------------------------------------------------------------------------------

    def _clock(self) -> int:
        return self.now + self.offset

    def _crash_point(self) -> None:
        if self.random.random() < self.faults.crash:
            raise Crash

    def _handle(self, message: Message) -> None:
        previous = self.store.receipt(commands.receipt_key(message.caller, message.key))
        decision, answer = commands.handle(self._snapshot(), message, self._clock(), previous)
        self._commit(decision)
        before = self.answers.setdefault(answer.key, answer)
        assert before == answer, "one key has two answers"

    def _snapshot(self) -> Book:
        """The book; sometimes one that another instance has written over in the meantime."""
        if self.random.random() < self.faults.stale:
            return self.old_book
        self.old_book = self.store.load()
        return self.old_book

    def _commit(self, decision: Decision) -> None:
        if decision.empty:
            return
        self._crash_point()
        try:
            self.store.commit(decision)
        except Conflict:
            raise Crash from None  # the message comes again; a pass is repeated in the next step
        self._record(decision)
        self._crash_point()

    def _decide(self, actor: str, decide: Callable[[Draft], object]) -> None:
        draft = Draft(self._snapshot(), self._clock(), actor)
        decide(draft)
        self._commit(draft.decision())

    def _service(self) -> None:
        self._decide("reconciler", reconcile.repair)
        self._watch_nodes()
        for warning in expiry.warnings_due(self.store.load(), max(self._clock(), self.store.load().clock.at)):
            self._crash_point()
            self._decide("expiry", lambda draft, warning=warning: expiry.record_warning(draft, warning, 1))  # type: ignore[misc]
        self._serve_disks()
        self._decide("expiry", expiry.tick)
        self._decide("planner", plan.plan)
        self.last_plan = self.now
        book = self.store.load()
        for order in [*reports.orders(book), *reports.observations(book)]:
            self._send(lambda order=order: self._to_agent(order))  # type: ignore[misc]
        self._crash_point()

    def _serve_disks(self) -> None:
        """The steps of `disk_work`: volumes are compared, then changed, and a crash may lose the report."""
        seen = [disks.Volume(id_, id_.partition("/")[0], f"claim-of-{id_}") for id_ in sorted(self.volumes)]
        self._decide("reconciler", lambda draft: disks.compare(draft, seen))
        for disk in [one for one in self.store.load().disks.values() if one.state in disks.WORK]:
            waits = "it is slow" if self.random.random() < 0.3 else ""
            if not waits and disk.state is DiskState.DELETING:
                self.volumes.discard(disk.volume_id)
            elif not waits:
                assert disk.state is not DiskState.COPYING or disk.source in self.volumes, f"{disk} has no source"
                self.volumes.add(disk.volume_id)
            report = partial(disks.report, name=disk.name, volume=disk.volume_id, waits=waits)
            self._decide("disks", report)
        book = self.store.load()
        self.volumes |= {book.disks[row.disk].volume_id for row in book.in_state(State.ACTIVE) if row.disk}
        volumes = [disk.volume_id for disk in book.disks.values()]
        assert len(volumes) == len(set(volumes)), "two disks have one volume"

    def _watch_nodes(self) -> None:
        for name, agent in self.agents.items():
            if agent.reachable:
                agent.silent_since = None
                self._decide("nodes", lambda draft, name=name: reports.node_back(draft, name))  # type: ignore[misc]
                continue
            agent.silent_since = agent.silent_since or self.now
            if self.now - agent.silent_since >= LIMITS.node_lost_s:
                self._decide("nodes", lambda draft, name=name: reports.node_lost(draft, name, "no answer"))  # type: ignore[misc]

    def _to_agent(self, order: Order) -> None:
        agent = self.agents[order.node]
        reply = agent.obey(order, self.random.random() < self.faults.setup)
        if reply is None:
            return
        kind, _ = reply
        self._check_access(agent)
        sessions = [reconcile.Session(id_, attempt, gpus) for id_, (attempt, gpus) in agent.sessions.items()]
        observation = reconcile.Observation(order.node, agent.fence, sessions)
        self._send(lambda: self._decide("nodes", lambda draft: self._report(draft, kind, order, observation)))

    def _report(self, draft: Draft, kind: str, order: Order, observation: reconcile.Observation) -> None:
        if kind == "ready":
            reports.session_ready(draft, order.reservation, order.attempt, order.node)
        elif kind == "failed":
            reports.session_failed(draft, order.reservation, order.attempt, order.node, "no disk space")
        elif kind == "cleared":
            reports.session_cleared(draft, order.reservation, order.attempt, order.node)
        elif kind == "has access":
            access.granted(draft, order.reservation, order.access, order.node)
        elif kind == "clean":
            reports.node_clean(draft, order.node, order.fence)
        else:
            for stray in reconcile.compare(draft, {order.node: observation}):
                self._send(lambda stray=stray: self._to_agent(stray))  # type: ignore[misc]

    # ---- what must hold -------------------------------------------------------------------------------------------

    def _record(self, decision: Decision) -> None:
        book = self.store.load()
        self.entries += decision.entries
        for entry in decision.entries:
            if entry.after in set(State):
                _check_transition(self.states.get(entry.subject), entry)
                self.states[entry.subject] = State(entry.after)
        for change in decision.changes:
            if isinstance(change.row, Reservation):
                self._check_change(book, change.row)
        _check_ledger(book)
        self._check_quotas(book)

    def _check_change(self, book: Book, row: Reservation) -> None:
        before = self.rows.get(row.id)
        self.rows[row.id] = row
        if before is None:
            waiting = [other for other in book.in_state(State.QUEUED) if other.gpu_type == row.gpu_type]
            self.ahead[row.id] = len(waiting)
        elif before.state is State.QUEUED and row.state is State.PREPARING:
            self._check_start(book, before, row)
        elif before.state is State.ACTIVE and row.outcome is State.EXPIRED and row.state is State.ENDING:
            assert (row.warned_at or row.since_at) + LIMITS.grace_s <= row.since_at, "ended without a warning"
            assert row.since_at >= (row.end_at or 0) + LIMITS.grace_s, "ended too early"

    def _check_start(self, book: Book, before: Reservation, row: Reservation) -> None:
        assert len({slot.node for slot in row.slots}) == row.nodes
        assert all(len(slot.gpus) == row.gpus for slot in row.slots)
        assert len({book.nodes[slot.node].zone for slot in row.slots}) == 1, "a gang in two zones"
        assert {book.nodes[slot.node].gpu_type for slot in row.slots} == {row.gpu_type}
        if before.promised_at is not None:
            # The pass runs once a step; only faults (crashes, jumps, lost messages) make it later than that.
            late = row.since_at - before.promised_at
            assert late <= 0 or self.faults != NONE, f"promise to {row.id} broken by {late} s"
        if self.faults == NONE and not self.quotas and row.disk is None:
            bound = LIMITS.starving_s + (self.ahead[row.id] + 2) * longest_hold_s(LIMITS.longest_extended_s, LIMITS)
            assert row.since_at - row.submitted_at <= bound, "starvation bound broken"

    def _check_access(self, agent: Agent) -> None:
        node = self.store.load().nodes[agent.node]
        if node.state is NodeState.READY:
            for id_, (_, gpus) in agent.sessions.items():
                assert {node.allocated[gpu] for gpu in gpus} == {id_}, f"{id_} has GPUs of others on {agent.node}"

    def _check_quotas(self, book: Book) -> None:
        limit = book.site.limits.gpus_per_person
        for person in {row.person for row in book.reservations.values()}:
            use = sum(row.total_gpus for row in book.in_state(*HOLDING) if row.person == person)
            assert limit is None or use <= limit, f"{person} has {use} GPUs of {limit}"

    def _check_end(self) -> None:
        book = self.store.load()
        assert not book.reservations, f"not over: {list(book.reservations.values())[:3]}"
        assert all(state in TERMINAL for state in self.states.values())
        assert all(holder is None for node in book.nodes.values() for holder in node.allocated)
        assert all(disk.attached is None for disk in book.disks.values())
        for agent in self.agents.values():
            if book.nodes[agent.node].state is NodeState.READY:
                assert not agent.sessions, f"{agent.node} still has {agent.sessions}"

    def moved_promises(self) -> list[AuditEntry]:
        """Promises that were moved or withdrawn."""
        return [entry for entry in self.entries if entry.action in ("move promise", "withdraw promise")]


def _check_transition(before: State | None, entry: AuditEntry) -> None:
    expected = State.REQUESTED if before is None else before
    assert entry.before == expected, f"{entry} does not follow {before}"
    assert State(entry.after) in {after for (state, _), after in TRANSITIONS.items() if state is expected}


def _check_ledger(book: Book) -> None:
    holders: set[str] = set()
    for node in book.nodes.values():
        assert 0 <= len(node.free) <= len(node.allocated)
        holders |= {holder for holder in node.allocated if holder is not None}
    live = {row.id for row in book.in_state(*HOLDING)}
    assert holders == live, f"ledger {holders}, reservations {live}"
    for row in book.in_state(*HOLDING):
        assert ledger.slots_of(book.nodes, row.id) == tuple(sorted(row.slots, key=lambda slot: slot.node))
    disks = [row.disk for row in book.in_state(*HOLDING) if row.disk is not None]
    assert len(disks) == len(set(disks)), "a disk is attached twice"
    for row in book.in_state(*HOLDING):
        assert row.disk is None or book.disks[row.disk].attached == row.id
    for row in book.reservations.values():
        assert row.disk is None or row.disk in book.disks, f"the disk of {row.id} was deleted"
    assert len([row for row in book.in_state(State.QUEUED) if row.promised_at]) <= len(
        {row.gpu_type for row in queue.ordered(book, book.clock.at, {})}
    )
