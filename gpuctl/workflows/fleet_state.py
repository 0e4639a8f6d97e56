"""State of a fleet: its health, its users, and its last NCCL measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpuctl.audit import knowledge
from gpuctl.domain.findings import Finding, worst_first
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl import history
from gpuctl.nccl.history import Measured
from gpuctl.nodes.model import Node
from gpuctl.workflows import audit, audit_rules, nodes


@dataclass(frozen=True)
class FleetState:
    """Findings of the audit, use of the nodes, and the last measurement of this inventory; None if there is none.

    `notes`: what the user should know besides, such as readings that could not be kept.
    """

    findings: Sequence[Finding]
    nodes: Sequence[Node]
    measured: Measured | None
    unreached: bool
    notes: Sequence[str] = ()


def ask(
    hosts: Sequence[Target], forks: int, limit_s: float, inventory: str, on_result: Callable[[HostResult], None]
) -> FleetState:
    """Ask every host for its health and its users, both at once; `on_result` gets the answers about health."""
    notes: list[str] = []
    with ThreadPoolExecutor(1) as beside:
        users = beside.submit(nodes.ask, hosts, forks, limit_s, lambda _: None)
        facts = audit.ask(hosts, audit.AuditOptions(forks, limit_s), on_result)
        use = nodes.use([users.result()], recorded=False, notify=notes.append)
    findings = worst_first(audit_rules.judge(facts, knowledge.catalogue()))
    unreached = bool(facts.unasked) or not all(node.reached for node in use)
    return FleetState(findings, use, last_measured(inventory), unreached, notes)


def last_measured(inventory: str) -> Measured | None:
    """Return the newest measurement of this inventory that this machine took; None if there is none."""
    return next(iter(history.latest(1, inventory=inventory)), None)
