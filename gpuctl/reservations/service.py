"""The service of a single server: calls of people, and passes that warn, end, plan and order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.reservations.agent import DiskAgent, NodeAgent
from gpuctl.reservations.calls import DOING
from gpuctl.reservations.command_calls import VERBS, CommandCalls
from gpuctl.reservations.decisions import Decisions
from gpuctl.reservations.disk_work import DiskWork
from gpuctl.reservations.fan_out import on_all
from gpuctl.reservations.github_keys import GithubSource, ReadUser
from gpuctl.reservations.node_states import NodeStates
from gpuctl.reservations.order_work import OrderWork
from gpuctl.reservations.pod_calls import PodCalls
from gpuctl.reservations.rules import reconcile
from gpuctl.reservations.rules.model import Caller, Node
from gpuctl.reservations.sampling import Samples
from gpuctl.reservations.stores.base import Store
from gpuctl.reservations.views import Views
from gpuctl.reservations.warnings import Warnings


class Service:
    """Decides on a store and orders on nodes. One decision at a time; the clock is whole seconds since 1970.

    Nodes are asked without the lock of decisions: one that takes its time delays no call.

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
        self.store, self.agents, self.clock = store, agents, clock
        decisions = self.decisions = Decisions(store, clock)
        self.nodes = NodeStates(decisions, doubts, reread)
        self.github = GithubSource(read_github, clock)
        self.disks = DiskWork(disk_agent, decisions.load, decisions.decide)
        self.pods = PodCalls(decisions.live, agents)
        self.orders = OrderWork(decisions, agents, self.nodes)
        self.views = Views(decisions, self.nodes, self.orders, self.github)
        self._commands = CommandCalls(
            decisions, self.github, self.disks, self.orders, self.views, has_account=has_account
        )
        self._samples = Samples()
        self._warnings = Warnings(agents, self.nodes.silence)

    @property
    def silence(self) -> Mapping[str, str]:
        """Nodes that gave no answer the last time, and why."""
        return self.nodes.silence

    @property
    def waiting(self) -> bool:
        """True while a node has not ended with an order."""
        return self.orders.waiting

    def answer(self, caller: Caller, call: Any) -> dict[str, Any]:
        """Answer one call; an error is an answer, too: `error`, `hint` and `exit_code`."""
        try:
            return self.reply(caller, call)
        except GpuctlError as error:
            return {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}

    def reply(self, caller: Caller, call: Any) -> dict[str, Any]:
        """Answer one call; `GpuctlError` where it cannot be, but a refusal of the rules is an answer."""
        verb, content = _parts(call)
        if verb in _CALLS_OF_NODES:
            return _CALLS_OF_NODES[verb](self, caller, content)
        if verb in VERBS:
            return self._commands.answer(caller, verb, content)
        with self._commands.turn():
            return _CALLS[verb](self, caller, content)

    def pass_once(self) -> None:
        """Everything that time and nodes demand: repair, observe, warn, end, plan, order.

        Nodes are observed while calls are answered: one that does not answer takes its time.
        """
        with self.decisions.lock:
            self.decisions.decide("reconciler", reconcile.repair)
            fences = {name: self.decisions.load().nodes[name].fence for name in self.agents}
        observations = on_all(list(fences), lambda name: self.agents[name].observe(fences[name]))
        self.nodes.read_again()
        with self.orders.sending:
            with self.decisions.lock:
                compared = [self.nodes.compare(name, found, fences[name]) for name, found in observations.items()]
                tasks = [(stray, self.orders.task(stray)) for strays in compared for stray in strays]
            self.orders.send(tasks)
        self.disks.step()
        self._sample()
        with self.decisions.lock:
            self.decisions.decide("idle", self._samples.judge)
            book = self.decisions.load()
        records = self._warnings.show(book, max(self.decisions.clock(), book.clock.at))
        with self.decisions.lock:
            for record in records:
                self.decisions.decide("expiry", record)
        self.orders.advance()

    def refresh_keys(self) -> None:
        """Read keys of GitHub again where that is due; no part of a pass, which does not wait for GitHub."""
        self.github.refresh(self.decisions.load, self.decisions.decide)

    def _sample(self) -> None:
        """Read the use of sessions while calls are answered, where that is due."""
        book, now = self.decisions.load(), self.decisions.clock()
        due = self._samples.due(book, now, self.nodes.silent_since)
        if due:
            answers = on_all(list(due), lambda name: self.agents[name].use(due[name]))
            uses = {name: answer for name, answer in answers.items() if not isinstance(answer, Exception)}
            self._samples.add(book, now, uses)


Call: TypeAlias = Callable[[Service, Caller, dict[str, Any]], dict[str, Any]]
_CALLS: dict[str, Call] = {
    "state": lambda service, caller, content: service.views.state(caller, content),
    "history": lambda service, caller, content: service.views.history(caller, content),
    "disks": lambda service, caller, content: service.disks.rows(caller, content),
}
# Nodes are asked for these: others do not wait meanwhile.
_CALLS_OF_NODES: dict[str, Call] = {
    "login": lambda service, caller, content: service.pods.login(caller, content),
    "logs": lambda service, caller, content: service.pods.logs(caller, content),
}


def _parts(call: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(call, dict) or call.get("do") not in {*VERBS, *_CALLS, *_CALLS_OF_NODES}:
        raise InvalidInput(DOING, "the call is not one that this service knows", "use the same version of gpuctl")
    return call["do"], {name: value for name, value in call.items() if name != "do"}
