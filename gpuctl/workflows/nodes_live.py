"""Use of GPUs read again and again: a host that does not answer leaves its row waiting, and delays no other."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.edges import processes
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nodes import node_use
from gpuctl.nodes.model import Fleet, Node
from gpuctl.workflows import nodes as flow

Ask = Callable[[Sequence[Target], Callable[[HostResult], None]], object]


@dataclass(frozen=True)
class _Failed:
    """Reading of hosts that raised an error."""

    hosts: Sequence[Target]
    error: Exception


@dataclass(frozen=True)
class _Arrived:
    """Result of a host, and the Unix time of its arrival: it may be collected much later."""

    result: HostResult
    at: int


class LiveNodes:
    """Readings of hosts. `ask`: asks hosts and hands over each result as it arrives; see nodes.ask.

    `nodes`: the newest use of each host, in the order of the hosts; None until it has answered or failed. `read_at`:
    Unix time of the newest answer, None before the first. `answered_at`: that of each host's newest answer.
    """

    def __init__(self, hosts: Sequence[Target], ask: Ask) -> None:
        self.nodes: dict[str, Node | None] = dict.fromkeys(host.name for host in hosts)
        self._hosts = [host for host in hosts if not host.needs_ansible]
        self._ask = ask
        self.read_at: int | None = None
        self.answered_at: dict[str, int] = {}
        self._asked_at: dict[str, float] = {}
        self._results: queue.SimpleQueue[_Arrived | _Failed] = queue.SimpleQueue()
        for host in hosts:
            if host.needs_ansible:
                why = f"only Ansible can reach it: {host.needs_ansible}"
                self.nodes[host.name] = node_use.unasked(host.name, why)

    @property
    def waiting(self) -> Mapping[str, float]:
        """Hosts that have not answered yet -> Unix time at which they were asked."""
        return dict(self._asked_at)

    def start(self) -> None:
        """Ask all hosts that are not still waited for, in a thread."""
        hosts = [host for host in self._hosts if host.name not in self._asked_at]
        self._asked_at |= dict.fromkeys((host.name for host in hosts), time.time())
        if hosts:
            threading.Thread(target=self._read, args=(hosts,), daemon=True).start()

    def _read(self, hosts: Sequence[Target]) -> None:
        try:
            self._ask(hosts, lambda result: self._results.put(_Arrived(result, round(time.time()))))
        except Exception as error:  # noqa: BLE001 - raised where the answers are collected
            self._results.put(_Failed(hosts, error))

    def collect(self, wait_s: float, notify: Callable[[str], None]) -> int:
        """Take over the answers of the next `wait_s` seconds, or until all have answered; returns their number."""
        end = time.monotonic() + wait_s
        arrived: list[_Arrived] = []
        while self._asked_at:
            try:
                entry = self._results.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(entry, _Failed):
                for host in entry.hosts:
                    self._asked_at.pop(host.name, None)
                raise entry.error
            self._asked_at.pop(entry.result.host, None)
            arrived.append(entry)
        if arrived:
            self.read_at = max(entry.at for entry in arrived)
            self.answered_at |= {entry.result.host: entry.at for entry in arrived}
            self.nodes |= {node.name: node for node in flow.use(_fleets(arrived), recorded=False, notify=notify)}
        return len(arrived)


def _fleets(arrived: Sequence[_Arrived]) -> list[Fleet]:
    """Facts by the second of their arrival, the oldest first."""
    fleets = []
    for at in sorted({entry.at for entry in arrived}):
        results = [entry.result for entry in arrived if entry.at == at]
        answers = {result.host: result.answer["use"] for result in results if result.answer is not None}
        errors = {result.host: result.wrong for result in results if result.answer is None}
        fleets.append(Fleet(answers, errors, at))
    return fleets


def of_hosts(hosts: Sequence[Target], forks: int, timeout_s: float) -> LiveNodes:
    """Readings of hosts over ssh."""
    return LiveNodes(hosts, lambda chosen, on_result: flow.ask(chosen, forks, timeout_s, on_result))


def end_connections(limit_s: float) -> None:
    """End the programs of all readings, for a process that ends before they do; kill those left after the limit."""
    processes.stop_all(limit_s)
