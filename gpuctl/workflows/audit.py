"""Audit of GPU nodes: collect their facts in one trip to each, or take recorded ones, and judge them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.audit import judge as log_judge
from gpuctl.audit import read as log_file
from gpuctl.audit import recorded
from gpuctl.domain.findings import Finding
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl.preflight import facts_file
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows import audit_rules
from gpuctl.workflows.preflight_facts import fleet_of

COMMAND = "gpuctl audit"


@dataclass(frozen=True)
class AuditOptions:
    """`forks`: nodes at a time. `limit_s` for one node. `window_s`: seconds between two readings of the counters.

    `since_h`: only messages that the journal has of the last hours; None for all of this boot and the one before.
    """

    forks: int = 64
    limit_s: float = 120.0
    window_s: float = 2.0
    since_h: float | None = None


def ask(hosts: Sequence[Target], options: AuditOptions, on_result: Callable[[HostResult], None]) -> Fleet:
    """Collect the facts of every host; hosts that do not answer are `unasked`, with the reason."""
    request: dict[str, Any] = {"action": "facts", "subjects": "audit", "window_s": options.window_s}
    if options.since_h is not None:
        request["since_h"] = options.since_h
    results = run_on_all(
        [host for host in hosts if not host.needs_ansible],
        lambda _: request,
        forks=options.forks,
        timeout_s=options.limit_s + options.window_s,
        on_result=on_result,
    )
    return fleet_of(hosts, {result.host: result for result in results})


def judge_file(path: Path, catalogue: Catalogue) -> list[Finding]:
    """Findings for a file: facts of an earlier audit, nvidia-smi's XML, or a kernel log."""
    kind = recorded.kind(path)
    if kind is recorded.Kind.FACTS:
        return audit_rules.judge(facts_file.read(path, "audit", COMMAND), catalogue)
    if kind is recorded.Kind.XML:
        return audit_rules.judge_gpus({path.name: recorded.read_xml(path)})
    log, faults = log_file.read(path)
    return log_judge.judge(str(path), log, catalogue, faults)
