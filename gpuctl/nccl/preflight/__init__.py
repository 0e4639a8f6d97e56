"""Judges nodes by their facts before any run: pure, so it serves a fleet just asked and a file of facts alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.node_facts import Fleet
from gpuctl.nccl.preflight import fabric, gpus, idle, network, software

Rule = Callable[[Fleet], list[Finding]]
# If one of these fails, a run cannot start or would disturb somebody else's.
BEFORE: tuple[Rule, ...] = (idle.idle, software.tests, software.mpi, network.ssh, network.names)
BEFORE_ALONE: tuple[Rule, ...] = (idle.idle, software.tests)
BEFORE_ASKS = ("gpu", "jobs", "programs", "reach", "names")
# What is wrong on a node whether it runs NCCL or not.
OF_NODES: tuple[Rule, ...] = (
    gpus.count,
    gpus.model,
    gpus.driver,
    gpus.fabric_manager,
    gpus.memory,
    gpus.clocks,
    fabric.adapters_,
)
RULES: tuple[Rule, ...] = (
    *OF_NODES,
    fabric.peer_memory_,
    fabric.memlock,
    software.tests,
    software.mpi,
    software.nccl,
    software.settings,
    network.names,
    network.ssh,
    idle.idle,
)


def judge(fleet: Fleet, unasked: Mapping[str, str] | None = None, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Every rule over {node: facts}; `unasked` are nodes that gave no answer, with the reason.

    Each rule gives at least one finding: one OK for all nodes, or one for each node it has something to say of.
    """
    lost = [
        Finding(
            "reachable", node, Verdict.UNKNOWN, f"nothing is known of it: {reason}", hint="reach it, or leave it out"
        )
        for node, reason in (unasked or {}).items()
    ]
    return [*lost, *(finding for rule in rules for finding in rule(fleet))] if fleet else lost
