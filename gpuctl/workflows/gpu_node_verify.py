"""Verify the stack of GPU hosts by their own tools: what is installed and running, and which GPUs and adapters work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from gpuctl.audit import knowledge
from gpuctl.audit.rules import diagnostics
from gpuctl.domain.findings import Finding, unknown
from gpuctl.gpu_node import gds_check, verify
from gpuctl.gpu_node.dkms_modules import GDS
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import Target
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import diagnosis
from gpuctl.workflows.gpu_node_plan import OnResult, PlanRequest, Survey, plans_of

LOGIN = "repair the login, and verify again"
POLL_S = 5.0
IDLE = {"action": "facts", "subjects": "nccl", "only": ["gpu", "jobs"]}  # before a diagnosis
QUESTION = {"action": "facts", "subjects": "nccl", "only": list(verify.SUBJECTS)}
WITH_GDS = {**QUESTION, "only": [*verify.SUBJECTS, gds_check.SUBJECT]}  # which starts CUDA


@dataclass(frozen=True)
class Verified:
    """Findings of each host. `unasked`: host -> why it was not reached; `left_out`: hosts without a gpu_stack."""

    findings: Mapping[str, Sequence[Finding]]
    unasked: Mapping[str, str]
    left_out: Sequence[str] = ()


def verify_surveyed(surveyed: Survey, request: PlanRequest, today: date, on_result: OnResult) -> Verified:
    """Judge hosts whose facts have just been read."""
    fleet = surveyed.fleet
    reached = [host for host in surveyed.targets if host.name in fleet.hosts]
    plans = plans_of(fleet, today)
    with_gds = {made.host for made in plans if any(part.name == GDS for part in made.components)}
    readings, unasked = read_tools(reached, request, on_result, with_gds=with_gds)
    findings: dict[str, list[Finding]] = {}
    for made in plans:
        if made.host in readings:
            facts = host_gpu_facts(fleet.hosts[made.host].stack)
            findings[made.host] = verify.judge(made, facts, readings[made.host])
    unasked = {**fleet.unasked, **unasked}
    findings |= {host: [unknown("facts", host, reason, LOGIN)] for host, reason in unasked.items()}
    return Verified(findings, unasked, surveyed.left_out)


def diagnose(
    hosts: Sequence[Target], level: int, request: PlanRequest, on_result: OnResult, on_step: Callable[[str], None]
) -> dict[str, list[Finding]]:
    """Findings of DCGM's diagnosis on every host, never none; one that is in use is not disturbed, and UNKNOWN."""
    readings, unasked = read_tools(hosts, request, on_result, IDLE)
    progress = diagnosis.once_a_minute(level, on_step)
    options = diagnosis.DeepOptions(level, request.forks, request.timeout, pause_s=POLL_S, new=True)
    fleet, lost = diagnosis.diagnose(hosts, Fleet(readings, unasked), options, progress, run_on_all)
    judged = diagnostics.diagnostics(
        {host: facts for host, facts in fleet.nodes.items() if diagnosis.CHECK in facts}, knowledge.dcgm_errors()
    )
    findings: dict[str, list[Finding]] = {host.name: [] for host in hosts}
    for finding in [*lost, *judged, *(unknown(diagnosis.CHECK, host, why) for host, why in unasked.items())]:
        findings[finding.subject].append(finding)
    return {
        host: rows or [unknown(diagnosis.CHECK, host, "it was not diagnosed", "only ssh can start a diagnosis")]
        for host, rows in findings.items()
    }


def read_tools(
    hosts: Sequence[Target],
    request: PlanRequest,
    on_result: OnResult,
    question: Mapping[str, object] = QUESTION,
    with_gds: Collection[str] = (),
) -> tuple[dict[str, Mapping[str, object]], dict[str, str]]:
    """Facts of each host by its tools, and the reasons of hosts that did not answer."""
    if not hosts:
        return {}, {}
    results = run_on_all(
        hosts,
        lambda host: WITH_GDS if host.name in with_gds else question,
        forks=request.forks,
        timeout_s=request.timeout,
        on_result=on_result,
    )
    answered = {result.host: result.answer["facts"] for result in results if result.answer is not None}
    return answered, {result.host: result.wrong for result in results if result.answer is None}
