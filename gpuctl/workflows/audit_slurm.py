"""Audit of the nodes of a Slurm cluster: each by ssh, with the state that Slurm has of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuctl.domain import slurm_states
from gpuctl.domain.findings import Finding
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.nodes import slurm_view
from gpuctl.nodes.judge import slurm_reason
from gpuctl.workflows import audit, nodes_slurm

NO_HOST = "the inventory has no host with its name or address"


def ask(
    partition: str,
    nodes: str,
    hosts: Sequence[Target] | None,
    options: audit.AuditOptions,
    on_result: Callable[[HostResult], None],
) -> tuple[Fleet, list[Finding]]:
    """Facts of the selected nodes, and a finding for each that Slurm has drained or down.

    `hosts`: of an inventory; None to log in to the nodes by their addresses. A step of a job is not used: most GPUs
    are hidden there, and would look lost.
    """
    selected = nodes_slurm.select(partition, nodes)
    targets = {record.name: nodes_slurm.target_of(record, hosts) for record in selected.records}
    fleet = audit.ask([target for target in targets.values() if target], options, on_result)
    missing = {name: NO_HOST for name, target in targets.items() if target is None}
    judged = (
        slurm_states.finding(record.name, record.state, slurm_reason(slurm_view.state_of(record)))
        for record in selected.records
    )
    return Fleet(fleet.nodes, {**fleet.unasked, **missing}), [finding for finding in judged if finding]
