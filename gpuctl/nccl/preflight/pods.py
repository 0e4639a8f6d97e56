"""Rules before a run in existing pods, which belong to an environment and may be training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.domain.findings import Finding, fail, ok
from gpuctl.domain.node_facts import unread
from gpuctl.nccl.preflight import network
from gpuctl.nccl.preflight.idle import DRAIN, idle

GpuProcesses = Mapping[str, Any]  # answer of module_utils/launch/gpu_processes.py
Work = Mapping[str, GpuProcesses | str]  # by pod; a text if there is no answer
# Missing programs show when the run starts; a container's PATH locates them.
RULES = (idle, network.ssh, network.names)
RULES_ALONE = (idle,)
ASKS = ("gpu", "jobs", "reach", "names")
SHOWN = 3
ADVICE = f"end it or wait for it: {DRAIN.partition(': ')[2]}"
# Names and keys come from the environment, so no file of a pod is to be edited.
NETWORK = "`gpuctl cluster doctor` checks names, keys and sshd of the pods"


def at_work(work: Work) -> list[Finding]:
    """Check that no process in the pods holds a GPU or is a rank of a job."""
    findings = []
    for pod, answer in work.items():
        if isinstance(answer, str):
            findings.append(unread("idle", pod, "its use is", answer))
        elif answer["processes"]:
            message = f"a job runs there: {_named(answer['processes'])}"
            findings.append(fail("idle", pod, message, ADVICE, processes=len(answer["processes"])))
        elif answer["hidden"]:
            findings.append(unread("idle", pod, f"GPU use of {_named(answer['hidden'])} is", "permission denied"))
    return findings or [ok("idle", "", "no process in the pods holds a GPU or is a rank")]


def advice(finding: Finding) -> str:
    """Hint for a finding in pods, in place of the rule's hint for hosts."""
    if finding.hint and finding.check in ("ssh", "names"):
        return NETWORK
    return ADVICE if finding.hint == DRAIN else finding.hint


def _named(processes: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(processes) - SHOWN} more" if len(processes) > SHOWN else ""
    return ", ".join(map(_name, processes[:SHOWN])) + more


def _name(process: Mapping[str, Any]) -> str:
    rank = "" if process.get("rank") is None else f"rank {process['rank']}: "
    return f"{rank}{process['name'] or '?'} ({process['pid']})"
