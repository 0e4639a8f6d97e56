"""Rule `idle`: no process, no memory in use, and no allocation by a scheduler."""

from __future__ import annotations

from typing import Any

from gpuctl.domain import slurm_states
from gpuctl.domain.findings import Finding, fail, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, get, unread, why
from gpuctl.domain.slurm_states import IN_USE, SUFFIX_IN_USE, SUFFIX_LEAVING, WITHOUT_JOB

# Drivers before 510 count their own reserved memory (half a GiB on an H100) as used.
BUSY_MIB = 1024
SCHEDULED = {
    "slurm_steps": "Slurm runs {} job steps",
    "kubernetes_pods": "{} pods of Kubernetes hold GPUs",
    "nccl_tests": "somebody else's test runs there ({} processes of nccl-tests)",
}
DRAIN = "drain it first: a test in someone's job spoils both"


def idle(fleet: Fleet) -> list[Finding]:
    """Check that no node is in use."""
    findings = [f for node, facts in fleet.items() for f in [*_gpus(node, facts), *_allocated(node, facts)]]
    return or_ok("idle", "", findings, "no process, memory or allocation on any GPU")


def _gpus(node: str, facts: Facts) -> list[Finding]:
    gpus = get(facts, "gpu", "gpus")
    if gpus is None:
        return [unread("idle", node, "the use of its GPUs is", why(facts, "gpu", "gpus"))]
    processes = [f"{p['name'] or '?'} ({p['pid']})" for gpu in gpus for p in gpu["processes"] or ()]
    if processes:
        unique = list(dict.fromkeys(processes))
        shown = ", ".join(unique[:3]) + (f" and {len(unique) - 3} more" if len(unique) > 3 else "")
        return [fail("idle", node, f"processes on its GPUs: {shown}", DRAIN, processes=len(unique))]
    return _memory_in_use(node, gpus) + _silent(node, gpus)


def _memory_in_use(node: str, gpus: list[dict[str, Any]]) -> list[Finding]:
    """Find memory in use without a visible process: of a container, or left behind by a dead process."""
    used_mib = {index: gpu["used_mib"] for index, gpu in enumerate(gpus) if (gpu["used_mib"] or 0) > BUSY_MIB}
    if not used_mib:
        return []
    shown = ", ".join(f"GPU {index} {mib} MiB" for index, mib in used_mib.items())
    advice = "look for it with `fuser -v /dev/nvidia*`, also in containers; a reset frees memory without an owner"
    message = f"memory is in use, and no process is shown: {shown}"
    return [fail("idle", node, message, advice, used_mib=sum(used_mib.values()))]


def _silent(node: str, gpus: list[dict[str, Any]]) -> list[Finding]:
    silent = [
        index
        for index, gpu in enumerate(gpus)
        if gpu["processes"] is None and (gpu["used_mib"] is None or "processes" in gpu["unread"])
    ]
    if not silent:
        return []
    return [unread("idle", node, f"the use of GPU {', '.join(map(str, silent))} is", "nvidia-smi does not report it")]


def _allocated(node: str, facts: Facts) -> list[Finding]:
    findings = []
    for name, state in SCHEDULED.items():
        value = get(facts, "jobs", name)
        if value is None:
            findings.append(unread("idle", node, f"{name.replace('_', ' ')} are", why(facts, "jobs", name)))
        elif value:
            findings.append(fail("idle", node, state.format(value), DRAIN, **{name: value}))
    return findings + _slurm(node, facts)


def _slurm(node: str, facts: Facts) -> list[Finding]:
    """Judge Slurm's node state, name and suffixes; a node is free only if its state is known to mean that."""
    state: str | None = get(facts, "jobs", "slurm_state")
    if state is None:
        return [unread("idle", node, "its state in Slurm is", why(facts, "jobs", "slurm_state"))]
    name, suffixes = slurm_states.split(state)
    taken = [IN_USE[name]] if name in IN_USE else [SUFFIX_IN_USE[one] for one in suffixes if one in SUFFIX_IN_USE]
    if taken:
        return [fail("idle", node, f"its Slurm state is {state}: {taken[0]}", DRAIN, state=state)]
    if name not in WITHOUT_JOB:
        reason = f"its Slurm state {state} does not mean that it is free"
        return [unread("idle", node, "whether a job has it is", reason, f"scontrol show node {node}")]
    leaving = [SUFFIX_LEAVING[one] for one in suffixes if one in SUFFIX_LEAVING]
    return [warn("idle", node, f"Slurm {leaving[0]} ({state}): a run may be cut off", "wait for it")] if leaving else []
