"""Audit of the nodes of a Slurm cluster: each by ssh, with the state that Slurm has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuctl.domain import slurm_states
from gpuctl.domain.findings import Finding
from gpuctl.hosts.model import Target
from gpuctl.nodes import slurm_view
from gpuctl.nodes.judge import slurm_reason
from gpuctl.workflows import nodes_slurm

NO_HOST = "the inventory has no host with its name or address"


class Selection(NamedTuple):
    """Nodes to audit.

    `missing`: node -> why it has no host. `findings`: one for each node that Slurm has drained or down.
    """

    hosts: Sequence[Target]
    missing: Mapping[str, str] = {}
    findings: Sequence[Finding] = ()


def select(partition: str, nodes: str, hosts: Sequence[Target] | None) -> Selection:
    """Nodes of Slurm, of one partition and of a host list if these are not empty.

    `hosts`: of an inventory; None to log in to the nodes by their addresses. A step of a job is not used: most GPUs
    are hidden there, and would look lost.
    """
    selected = nodes_slurm.select(partition, nodes)
    targets = {record.name: nodes_slurm.target_of(record, hosts) for record in selected.records}
    judged = (
        slurm_states.finding(record.name, record.state, slurm_reason(slurm_view.state_of(record)))
        for record in selected.records
    )
    return Selection(
        [target for target in targets.values() if target],
        {name: NO_HOST for name, target in targets.items() if target is None},
        [finding for finding in judged if finding],
    )
