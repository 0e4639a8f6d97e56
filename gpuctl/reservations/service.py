"""The service of a single server: calls of people, and passes that warn, end, plan and order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.reservations.agent import (
    DiskAgent,
    InUse,
    NodeAgent,
    NotObeyed,
    NotReady,
    NoWhole,
    PodValues,
    Unable,
)
from gpuctl.reservations.calls import DOING, as_dict, build, iso, nothing_left
from gpuctl.reservations.disk_work import DiskWork
from gpuctl.reservations.fan_out import attempt, on_all
from gpuctl.reservations.github_keys import GithubSource, ReadUser
from gpuctl.reservations.pod_calls import PodCalls
from gpuctl.reservations.rules import access, commands, expiry, gang, plan, reconcile, reports, requests
from gpuctl.reservations.rules.access import AddUser, RemoveUser
from gpuctl.reservations.rules.commands import Cancel, Command, Edit, Extend, Keep, Message, Submit
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.disks import DISK_COMMANDS
from gpuctl.reservations.rules.forecast import Wait, forecast
from gpuctl.reservations.rules.model import Book, Caller, GithubKeys, Node, NodeState, Receipt, Reservation, State
from gpuctl.reservations.rules.reconcile import Observation
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.sampling import Samples
from gpuctl.reservations.stores.base import Conflict, Store
from gpuctl.reservations.warnings import Warnings

FORECAST_S = 5  # age of forecasts in answers
TRIES = 5  # of a decision whose rows another process changed
COMMANDS: Mapping[str, type[Command]] = {
    kind.__name__.lower(): kind for kind in (Cancel, Extend, Edit, Keep, AddUser, RemoveUser, *DISK_COMMANDS)
}
REREAD_S = 60  # between two readings of nodes in doubt
Built = TypeVar("Built")


class Service:
    """Decides on a store and orders on nodes. One decision at a time; the clock is whole seconds since 1970.

    Nodes are asked without the lock of decisions: one that takes its time delays no call. One thread at a time sends
    orders, in the order of the decisions; another one leaves its own to it.

    `doubts`: nodes that take no new session, and why; sessions on them end as usual. `reread`: reads such a node again;
    None if nothing can have changed. OSError or `GpuctlError` says why it is still in doubt.
    """

    def __init__(  # noqa: PLR0913 - a store, and a back end with its two kinds of agents
        self,
        store: Store,
        agents: Mapping[str, NodeAgent],
        clock: Callable[[], int],
        doubts: Mapping[str, str] | None = None,
        reread: Callable[[str], Node] | None = None,
        *,
        disk_agent: DiskAgent | None = None,
        read_github: ReadUser | None = None,
        has_account: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._samples = Samples()
        self.silence: dict[str, str] = {}  # node -> why it gave no answer the last time
        self.pods = PodCalls(self._live, agents)
        self._warnings = Warnings(agents, self.silence)
        self.github = GithubSource(read_github, clock)
        self._has_account = has_account
        self.disks = DiskWork(disk_agent, self._load, self._decide_alone)
        self.store, self.agents, self.clock, self.doubts = store, agents, clock, dict(doubts or {})
        self._reread = reread
        self._reread_at = clock() + REREAD_S
        self._open_by: dict[str, str] = {}  # node -> a program that has a GPU open without a session
        self._no_whole: dict[str, str] = {}  # node -> why it takes no session of all of its GPUs
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        self._left_orders = False  # by a thread that did not wait for the one that sends
        self._progress: dict[str, dict[str, str]] = {}  # reservation -> node -> what its preparation waits for
        self._silent_since: dict[str, int] = {}  # nodes that cannot be asked, whatever the cause
        self._away_since: dict[str, int] = {}  # those of them that do not answer
        self.waiting = False  # a node has not ended with an order
        self._callers = 0  # that wait for the lock
        self._counting = threading.Lock()
        self._shown: tuple[Book, int, list[dict[str, Any]]] | None = None

    # ---- calls ----------------------------------------------------------------------------------------------------

    def answer(self, caller: Caller, call: Any) -> dict[str, Any]:
        """Answer one call; an error is an answer, too: `error`, `hint` and `exit_code`."""
        try:
            verb, content = _parts(call)
            if verb in _CALLS_OF_NODES:
                return _CALLS_OF_NODES[verb](self, caller, content)
            if verb == "submit":
                return self._command(caller, content, Submit(build(Request, content.pop("request", None))))
            if verb in COMMANDS:
                return self._command(caller, content, build(COMMANDS[verb], content.pop("command", None)))
            with self._turn():
                return _CALLS[verb](self, caller, content)
        except GpuctlError as error:
            return {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The lock, once a caller has it."""
        with self._counting:
            self._callers += 1
        with self._lock:
            with self._counting:
                self._callers -= 1
            yield

    def _command(self, caller: Caller, content: dict[str, Any], command: Command) -> dict[str, Any]:
        key = content.pop("key", None)
        if not isinstance(key, str) or not 8 <= len(key) <= 100:
            raise InvalidInput(DOING, "the call has no idempotency key of 8 to 100 characters", "send a random one")
        nothing_left(content)
        with self._lock:
            is_known = self.store.receipt(commands.receipt_key(caller, key)) is not None  # it has its answer already
        command = command if is_known else self._resolved(caller, key, command)
        with self._turn():
            receipt = self._handle(Message(command, caller, key))
            if not receipt.accepted:
                return {"error": receipt.message, "hint": receipt.hint, "exit_code": InvalidInput.exit_code}
            of_disk = isinstance(command, DISK_COMMANDS)
            # The last of the callers makes a pass for all; the wait of this one is not known yet.
            if self._callers and not of_disk:
                row = self.store.reservation(receipt.reservation)
                return {"message": receipt.message, "reservation": row and as_dict(row, None, self.store.load())}
        if of_disk:
            return self._disk_command(caller, receipt)
        self._advance()
        with self._lock:
            return {"message": receipt.message, "reservation": self._row(receipt.reservation)}

    def _resolved(self, caller: Caller, key: str, command: Command) -> Command:
        """The command with the keys of the users of GitHub that it names; `GpuctlError` if it is refused before that.

        GitHub is asked without the lock of decisions, and only for a command that is accepted if it answers.
        """
        if not isinstance(command, AddUser | Submit):
            return command
        doing, people, github = _named(command)
        try:
            for person in people:
                access.check_account(person, doing)
                if not self._has_account(person):
                    wrong = f"there is no account {person} on this machine, or it is one of root or of a daemon"
                    hint = "they log in to this machine once, or an admin makes the account"
                    raise InvalidInput(doing, wrong, hint)
            if not github:
                return command
            access.check_github(github, doing)
            commands.check(self._load(), Message(_with_standins(command, github), caller, key), self.clock())
            return replace(command, resolved=self.github.resolve(github, doing, caller.person))
        except GpuctlError as error:
            action, subject, reason = commands.refusal(command), commands.subject(command, caller), str(error)
            self._decide_alone(caller.person, lambda draft: draft.note(action, subject, reason))
            raise

    def _load(self) -> Book:
        with self._lock:
            return self.store.load()

    def _decide_alone(self, actor: str, decide: Callable[[Draft], object]) -> object:
        with self._lock:
            return self._decide(actor, decide)

    def _disk_command(self, caller: Caller, receipt: Receipt) -> dict[str, Any]:
        """The answer to a command about a disk, after the first step on its volume."""
        self.disks.step()
        return {"message": receipt.message, "reservation": None, **self.disks.rows(caller, {})}

    def _handle(self, message: Message) -> Receipt:
        for _ in range(TRIES):
            previous = self.store.receipt(commands.receipt_key(message.caller, message.key))
            decision, receipt = commands.handle(self.store.load(), message, self.clock(), previous)
            try:
                if not decision.empty:
                    self.store.commit(decision)
            except Conflict:
                continue
            return receipt
        raise GpuctlError("decide", "another process changes the reservations all the time", "stop the other one")

    def state(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Nodes, live reservations with their waits, and the table that requests are checked against."""
        nothing_left(content)
        book = self.store.load()
        table, ready = requests.catalogue(book), NodeState.READY
        return {
            "person": caller.person,
            "now": iso(self.clock()),
            "offers": [asdict(offer) for offer in table.offers.values()],
            "aliases": dict(table.aliases),
            "limits": asdict(table.limits),
            "pods": table.pods,
            "disks": table.disks,
            "nodes": [
                {
                    "name": node.name,
                    "gpu_type": node.gpu_type,
                    "state": "unknown" if node.name in self._unknown and node.state is ready else str(node.state),
                    "reason": self.silence.get(node.name)
                    or self._doubtful.get(node.name)
                    or self._no_whole.get(node.name, ""),
                    "allocated": list(node.allocated),
                }
                for node in book.nodes.values()
            ],
            "reservations": self._rows(book),
        }

    def _live(self, id_: str) -> Reservation | None:
        with self._lock:
            return self.store.load().reservations.get(id_)

    def history(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Audit entries of a reservation, or reservations of the caller that are over."""
        subject = content.pop("subject", None)
        nothing_left(content)
        if subject is None:
            return {"reservations": [as_dict(row, None) for row in self.store.finished(caller.person, 50)]}
        entries = [{**asdict(entry), "at": iso(entry.at)} for entry in self.store.history(str(subject), 200)]
        return {"entries": entries}

    def _row(self, id_: str) -> dict[str, Any] | None:
        rows = {row["id"]: row for row in self._rows(self.store.load())}
        over = self.store.reservation(id_)
        return rows.get(id_) or (None if over is None else as_dict(over, None))

    def _rows(self, book: Book) -> list[dict[str, Any]]:
        """Live reservations; the same for some seconds if nothing changes, since many clients poll."""
        now = self.clock()
        if self._shown is None or self._shown[0] is not book or not 0 <= now - self._shown[1] < FORECAST_S:
            self._shown = book, now, self._forecast(book, now)
        return self._shown[2]

    def _forecast(self, book: Book, now: int) -> list[dict[str, Any]]:
        waits = forecast(book, now, self._unknown_until(), tuple(self._no_whole))
        live = sorted(book.reservations.values(), key=lambda row: (row.state is State.QUEUED, row.submitted_at, row.id))
        waiting = [row for row in live if row.state is State.QUEUED]
        waiting.sort(key=lambda row: (row.gpu_type, waits[row.id].position))
        rest = [row for row in live if row.state is not State.QUEUED]
        return [self._as_dict(row, waits.get(row.id), book) for row in [*rest, *waiting]]

    def _as_dict(self, row: Reservation, wait: Wait | None, book: Book) -> dict[str, Any]:
        """A live reservation; the reason of one that is prepared is what its nodes wait for."""
        plain = as_dict(row, wait, book)
        if access.github_of(row):
            plain["github_trouble"] = self.github.trouble
        waits = self._progress.get(row.id) if row.state is State.PREPARING else None
        if waits:
            plain["reason"] = "; ".join(f"{node}: {text}" for node, text in sorted(waits.items()))
        return plain

    # ---- passes ---------------------------------------------------------------------------------------------------

    def pass_once(self) -> None:
        """Everything that time and nodes demand: repair, observe, warn, end, plan, order.

        Nodes are observed while calls are answered: one that does not answer takes its time.
        """
        with self._lock:
            self._decide("reconciler", reconcile.repair)
            fences = {name: self.store.load().nodes[name].fence for name in self.agents}
        observations = on_all(list(fences), lambda name: self.agents[name].observe(fences[name]))
        self._read_again()
        with self._sending:
            with self._lock:
                compared = [self._compare(name, found, fences[name]) for name, found in observations.items()]
                tasks = [(stray, self._task(stray)) for strays in compared for stray in strays]
            self._send(tasks)
        self.disks.step()
        self._sample()
        with self._lock:
            self._decide("idle", self._samples.judge)
            book = self.store.load()
        records = self._warnings.show(book, max(self.clock(), book.clock.at))
        with self._lock:
            for record in records:
                self._decide("expiry", record)
        self._advance()

    def refresh_keys(self) -> None:
        """Read keys of GitHub again where that is due; no part of a pass, which does not wait for GitHub."""
        self.github.refresh(self._load, self._decide_alone)

    def _sample(self) -> None:
        """Read the use of sessions while calls are answered, where that is due."""
        book, now = self.store.load(), self.clock()
        due = self._samples.due(book, now, self._silent_since)
        if due:
            answers = on_all(list(due), lambda name: self.agents[name].use(due[name]))
            uses = {name: answer for name, answer in answers.items() if not isinstance(answer, Exception)}
            self._samples.add(book, now, uses)

    def _read_again(self) -> None:
        """Read the nodes whose first answer was bad once more, now and then: a repaired one takes sessions again."""
        if self._reread is None or not self.doubts or self.clock() < self._reread_at:
            return
        reread = self._reread

        def read(name: str) -> Node:
            try:
                return reread(name)
            except GpuctlError as error:
                raise Unable(error.wrong) from error

        for name, node in on_all(list(self.doubts), read).items():
            with self._lock:
                if isinstance(node, Exception):
                    self.doubts[name] = str(node)
                elif self._decide("nodes", partial(reports.node_read, node=node)):
                    del self.doubts[name]
                else:
                    self.doubts[name] = f"{name}: it has other GPUs than before: restart the service"
        self._reread_at = self.clock() + REREAD_S

    def _advance(self) -> None:
        """End, plan and order; again while orders change rows, or another thread has left some."""
        for _ in range(4):
            with self._lock:
                self._decide("expiry", expiry.tick)
                silent, no_whole = self._unknown_until(), tuple(self._no_whole)
                self._decide("planner", partial(plan.plan, silent=silent, no_whole=no_whole))
            if not self._sending.acquire(blocking=False):
                self._left_orders = True
                return
            try:
                self._left_orders = False
                changed = self._give_orders()
            finally:
                self._sending.release()
            if not changed and not self._left_orders:
                return

    @property
    def _unknown(self) -> set[str]:
        return {*self._silent_since, *self._doubtful}

    @property
    def _doubtful(self) -> dict[str, str]:
        """Nodes that take no new session, and why."""
        return {**self._open_by, **self.doubts}

    def _unknown_until(self) -> dict[str, int]:
        """Unknown nodes, and the instant until which they are taken as occupied."""
        return {name: self._silent_since.get(name, self.clock()) + self._lost_s for name in self._unknown}

    @property
    def _lost_s(self) -> int:
        return self.store.load().site.limits.node_lost_s

    def _decide(self, actor: str, decide: Callable[[Draft], Built]) -> Built:
        """Commit what is decided on a snapshot, again on a newer one if rows have changed; returns what it returned."""
        for _ in range(TRIES):
            draft = Draft(self.store.load(), self.clock(), actor)
            result = decide(draft)
            decision = draft.decision()
            try:
                if not decision.empty:
                    self.store.commit(decision)
            except Conflict:
                continue
            return result
        raise GpuctlError("decide", "another process changes the reservations all the time", "stop the other one")

    def _compare(self, name: str, observation: Observation | Exception, fence: int) -> Sequence[Order]:
        """Compare a node's sessions with the ledger; orders to end those that should not exist."""
        if isinstance(observation, Exception):
            if fence == self.store.load().nodes[name].fence:  # else it has got newer orders since, and refuses this one
                self._silent(name, observation)
            return ()
        self._silent_since.pop(name, None)
        self._away_since.pop(name, None)
        self.silence.pop(name, None)
        self._open_by.pop(name, None)
        self._no_whole.pop(name, None)
        if observation.no_whole:
            self._no_whole[name] = observation.no_whole
        if observation.closed:
            self._in_use(name, observation.closed)
        elif observation.open_by:
            more = f", and {len(observation.open_by) - 1} more" if len(observation.open_by) > 1 else ""
            self._in_use(name, f"{observation.open_by[0]}{more}; end it first")
        self._decide("nodes", lambda draft: reports.node_back(draft, name))
        return self._decide("reconciler", lambda draft: reconcile.compare(draft, {name: observation}))

    def _in_use(self, name: str, reason: str) -> None:
        """A program has a GPU open without a session: the node takes none, and who waits for it waits elsewhere."""
        self._open_by[name] = reason
        self._decide("nodes", lambda draft: reports.node_in_use(draft, name, reason))

    def _silent(self, name: str, error: Exception) -> None:
        """A node is unknown. It is lost only if it does not answer at all for long enough."""
        reason = str(error)
        self._silent_since.setdefault(name, self.clock())
        self.silence[name] = reason
        if isinstance(error, NotObeyed | Unable):
            self._away_since.pop(name, None)
            return
        since = self._away_since.setdefault(name, self.clock())
        if self.clock() - since >= self._lost_s and self.store.load().nodes[name].state is not NodeState.LOST:
            self._decide("nodes", lambda draft: reports.node_lost(draft, name, reason))

    def _give_orders(self) -> bool:
        """Send what nodes have to do, to all nodes at the same time; True if rows changed."""
        with self._lock:
            due = [order for order in reports.orders(self.store.load()) if self._may_send(order)]
            tasks = [(order, self._task(order)) for order in due]
        return self._send(tasks)

    def _send(self, tasks: Sequence[tuple[Order, Callable[[], Exception | None]]]) -> bool:
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
        with self._lock:  # all of them are taken, also after the first that changed something
            changed = [self._report(order, failures[order]) for order, _ in tasks if order in failures]
        return any(changed)

    def _may_send(self, order: Order) -> bool:
        doubtful = order.kind is OrderKind.PREPARE and order.node in self._doubtful
        return order.node not in self._silent_since and not doubtful

    def _task(self, order: Order) -> Callable[[], Exception | None]:
        """A function that sends an order and returns why it failed; it needs no rows, so any thread may call it."""
        row = self.store.reservation(order.reservation) if order.reservation else None
        person, variables = "" if row is None else row.person, dict[str, str]()
        if row is not None and order.kind is OrderKind.PREPARE:
            variables = gang.environment(row, self.store.load().nodes, order.node)
        pod = None if row is None else _pod_values(row, order.node, self.store.load())

        def send() -> Exception | None:
            return attempt(lambda: self.agents[order.node].obey(order, person, variables, pod))

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
            self._silent(order.node, failure)
        if failure is not None:
            return False
        ids = order.reservation, order.attempt, order.node
        if order.kind is OrderKind.PREPARE:
            self._decide("nodes", lambda draft: reports.session_ready(draft, *ids))
        elif order.kind is OrderKind.CLEAR:
            self._decide("nodes", lambda draft: reports.session_cleared(draft, *ids))
        else:
            self._decide("nodes", lambda draft: reports.node_clean(draft, order.node, order.fence))
        return True

    def _report_refusal(self, order: Order, refusal: NotObeyed) -> bool:
        """Take the refusal to prepare a session."""
        reason, ids = str(refusal), (order.reservation, order.attempt, order.node)
        if isinstance(refusal, InUse):
            self._in_use(order.node, reason)
        elif isinstance(refusal, NoWhole):
            self._no_whole[order.node] = reason
            self._decide("nodes", lambda draft: reports.session_refused(draft, *ids, reason))
        else:
            self._decide("nodes", lambda draft: reports.session_failed(draft, *ids, reason))
        return True

    def _report_access(self, order: Order, failure: Exception | None) -> bool:
        """Take the report of an order that gives access; nothing else follows from it. It is given until it is done."""
        which: dict[str, Any] = {"id_": order.reservation, "access": order.access, "node": order.node}
        if failure is None:
            self._decide("nodes", lambda draft: access.granted(draft, **which))
        elif isinstance(failure, OSError):
            self._silent(order.node, failure)
        else:
            self._decide("nodes", lambda draft: access.delayed(draft, **which, reason=str(failure)))
        return False

    def _note_progress(self, order: Order, failure: Exception | None) -> None:
        waits = self._progress.setdefault(order.reservation, {})
        waits.pop(order.node, None)
        if isinstance(failure, NotReady):
            waits[order.node] = str(failure)
        self._shown = None  # the rows of the database are the same
        live = self.store.load().reservations
        self._progress = {id_: texts for id_, texts in self._progress.items() if texts and id_ in live}


Call: TypeAlias = Callable[[Service, Caller, dict[str, Any]], dict[str, Any]]
_CALLS: dict[str, Call] = {
    "state": Service.state,
    "history": Service.history,
    "disks": lambda service, caller, content: service.disks.rows(caller, content),
}
# Nodes are asked for these: others do not wait meanwhile.
_CALLS_OF_NODES: dict[str, Call] = {
    "login": lambda service, caller, content: service.pods.login(caller, content),
    "logs": lambda service, caller, content: service.pods.logs(caller, content),
}


def _named(command: AddUser | Submit) -> tuple[str, list[str], list[str]]:
    """The purpose of a command in messages, the people whom it adds, and its users of GitHub."""
    if isinstance(command, AddUser):
        return f"add {command.person!r} to a reservation", [command.person], command.github.split()
    pairs = access.pairs(command.request.users)
    github = [*command.request.github.split(), *(login for _, login in pairs if login)]
    return requests.DOING, [person for person, _ in pairs], github


def _with_standins(command: AddUser | Submit, github: Sequence[str]) -> Command:
    """The command as if GitHub had answered, for a check that decides nothing."""
    return replace(command, resolved=tuple(GithubKeys(login.casefold(), 0, "stand-in") for login in github))


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


def _parts(call: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(call, dict) or call.get("do") not in {"submit", *_CALLS, *_CALLS_OF_NODES, *COMMANDS}:
        raise InvalidInput(DOING, "the call is not one that this service knows", "use the same version of gpuctl")
    return call["do"], {name: value for name, value in call.items() if name != "do"}
