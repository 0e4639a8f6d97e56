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


class LiveNodes:
    """Readings of hosts. `ask`: asks hosts and hands over each result as it arrives; see nodes.ask.

    `nodes`: the newest use of each host, in the order of the hosts; None until it has answered or failed.
    """

    def __init__(self, hosts: Sequence[Target], ask: Ask) -> None:
        self.nodes: dict[str, Node | None] = dict.fromkeys(host.name for host in hosts)
        self._hosts = [host for host in hosts if not host.needs_ansible]
        self._ask = ask
        self._asked_at: dict[str, float] = {}
        self._results: queue.SimpleQueue[HostResult | _Failed] = queue.SimpleQueue()
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
            self._ask(hosts, self._results.put)
        except Exception as error:  # noqa: BLE001 - raised where the answers are collected
            self._results.put(_Failed(hosts, error))

    def collect(self, wait_s: float, notify: Callable[[str], None]) -> int:
        """Take over the answers of the next `wait_s` seconds, or until all have answered; returns their number."""
        end = time.monotonic() + wait_s
        results: list[HostResult] = []
        while self._asked_at:
            try:
                result = self._results.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(result, _Failed):
                for host in result.hosts:
                    self._asked_at.pop(host.name, None)
                raise result.error
            self._asked_at.pop(result.host, None)
            results.append(result)
        if results:
            answers = {result.host: result.answer["use"] for result in results if result.answer is not None}
            errors = {result.host: result.wrong for result in results if result.answer is None}
            fleet = Fleet(answers, errors, round(time.time()))
            self.nodes |= {node.name: node for node in flow.use([fleet], recorded=False, notify=notify)}
        return len(results)


def of_hosts(hosts: Sequence[Target], forks: int, timeout_s: float) -> LiveNodes:
    """Readings of hosts over ssh."""
    return LiveNodes(hosts, lambda chosen, on_result: flow.ask(chosen, forks, timeout_s, on_result))


def end_connections() -> None:
    """End the programs of all readings, for a process that ends before they do."""
    processes.stop_all()
