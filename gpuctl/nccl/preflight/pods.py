"""The rules before a run in pods that run already: they are an environment's own, and may be training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.domain.findings import Finding, fail, ok
from gpuctl.nccl.preflight import network
from gpuctl.nccl.preflight.checks import unread
from gpuctl.nccl.preflight.idle import DRAIN, idle

# Pod -> what the answer of module_utils/launch/gpu_processes.py; None: no answer.
Work = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]] | None]
# What is installed shows when the run begins; where a container has its programs its own PATH says.
RULES = (idle, network.ssh, network.names)
RULES_ALONE = (idle,)
ASKS = ("gpu", "jobs", "reach", "names")
SHOWN = 3
ADVICE = f"end it or wait for it: {DRAIN.partition(': ')[2]}"
# Names and keys are the environment's: nobody edits a file of a pod for them.
NETWORK = "`gpuctl cluster doctor` looks at names, keys and sshd of the pods"


def at_work(work: Work) -> list[Finding]:
    """No process of the pods holds a GPU or is a rank of a job."""
    findings = []
    for pod, answer in work.items():
        if answer is None:
            findings.append(unread("idle", pod, "what runs there is", "it gave no answer"))
        elif answer["processes"]:
            message = f"a job runs there: {_named(answer['processes'])}"
            findings.append(fail("idle", pod, message, ADVICE, processes=len(answer["processes"])))
        elif answer["hidden"]:
            findings.append(unread("idle", pod, f"what {_named(answer['hidden'])} is at is", "we may not look at it"))
    return findings or [ok("idle", "", "no process in the pods holds a GPU or is a rank")]


def advice(finding: Finding) -> str:
    """What can be done in pods about a finding of a rule for hosts."""
    if finding.hint and finding.check in ("ssh", "names"):
        return NETWORK
    return ADVICE if finding.hint == DRAIN else finding.hint


def _named(processes: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(processes) - SHOWN} more" if len(processes) > SHOWN else ""
    return ", ".join(map(_name, processes[:SHOWN])) + more


def _name(process: Mapping[str, Any]) -> str:
    rank = "" if process.get("rank") is None else f"rank {process['rank']}: "
    return f"{rank}{process['name'] or '?'} ({process['pid']})"
