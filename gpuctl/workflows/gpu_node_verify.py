"""Verify the stack of GPU hosts by their own tools: what is installed and running, and which GPUs and adapters work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from gpuctl.domain.findings import Finding, unknown
from gpuctl.gpu_node import verify
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import Target
from gpuctl.workflows.gpu_node_plan import OnResult, PlanRequest, Survey, plans_of, survey

LOGIN = "repair the login, and verify again"
QUESTION = {"action": "facts", "subjects": "nccl", "only": list(verify.SUBJECTS)}


@dataclass(frozen=True)
class Verified:
    """Findings of each host. `unasked`: host -> why it was not reached; `left_out`: hosts without a gpu_stack."""

    findings: Mapping[str, Sequence[Finding]]
    unasked: Mapping[str, str]
    left_out: Sequence[str] = ()


def verify_hosts(request: PlanRequest, today: date, on_result: OnResult) -> Verified:
    """Read every host twice, for the plan and for its tools, and judge it; nothing is changed on it."""
    return verify_surveyed(survey(request, today, on_result), request, today, on_result)


def verify_surveyed(surveyed: Survey, request: PlanRequest, today: date, on_result: OnResult) -> Verified:
    """Judge hosts whose facts have just been read."""
    fleet = surveyed.fleet
    reached = [host for host in surveyed.targets if host.name in fleet.hosts]
    readings, unasked = _readings(reached, request, on_result)
    findings: dict[str, list[Finding]] = {}
    for made in plans_of(fleet, today):
        if made.host in readings:
            facts = host_gpu_facts(fleet.hosts[made.host].stack)
            findings[made.host] = verify.judge(made, facts, readings[made.host])
    unasked = {**fleet.unasked, **unasked}
    findings |= {host: [unknown("facts", host, reason, LOGIN)] for host, reason in unasked.items()}
    return Verified(findings, unasked, surveyed.left_out)


def _readings(
    hosts: Sequence[Target], request: PlanRequest, on_result: OnResult
) -> tuple[dict[str, Mapping[str, object]], dict[str, str]]:
    """What the tools of each host print, and why hosts did not answer."""
    if not hosts:
        return {}, {}
    results = run_on_all(hosts, lambda _: QUESTION, forks=request.forks, timeout_s=request.timeout, on_result=on_result)
    answered = {result.host: result.answer["facts"] for result in results if result.answer is not None}
    return answered, {result.host: result.wrong for result in results if result.answer is None}
