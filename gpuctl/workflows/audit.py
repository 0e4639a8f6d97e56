"""Audit of GPU nodes: collect their facts in one trip to each, or take recorded ones, and judge them by every rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuctl.audit import judge as log_judge
from gpuctl.audit import kernel, recorded, rules
from gpuctl.audit import read as log_file
from gpuctl.domain.findings import Finding, Verdict, worst_first
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.node_facts import Fleet as Nodes
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight import facts_file, gpus, idle
from gpuctl.nccl.preflight.facts_file import Fleet
from gpuctl.workflows.preflight_facts import AT_A_TIME, fleet_of

SUBJECTS = ("gpu", "rdma", "names", "jobs", "kernel_log", "nvlink", "pcie", "counters", "system")
# Rules for which nvidia-smi's XML is enough.
OF_XML = (gpus.count, gpus.model, gpus.driver, gpus.memory, gpus.clocks)
COMMAND = "gpuctl audit"
# Their hints disturb whoever uses the node.
DISTURBING = ("reset", "reboot", "drain", "reseat", "restart", "stop and start")


@dataclass(frozen=True)
class AuditOptions:
    """`forks`: nodes at a time. `limit_s` for one node. `window_s`: seconds between two readings of the counters.

    `since_h`: only kernel messages of the last hours; None for all of this boot and the one before.
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
    direct = [host for host in hosts if not host.needs_ansible]
    results = [
        result
        for start in range(0, len(direct), AT_A_TIME)
        for result in run_on_all(
            direct[start : start + AT_A_TIME],
            lambda _: request,
            forks=options.forks,
            timeout_s=options.limit_s + options.window_s,
            on_result=on_result,
        )
    ]
    return fleet_of(hosts, {result.host: result for result in results})


def read(path: Path) -> Fleet:
    """Facts that an earlier audit saved; `InvalidInput` for any other file."""
    return facts_file.read(path, SUBJECTS, COMMAND)


def judge_file(path: Path, catalogue: Catalogue) -> list[Finding]:
    """Findings for a file: facts of an earlier audit, nvidia-smi's XML, or a kernel log."""
    kind = recorded.kind(path)
    if kind is recorded.Kind.FACTS:
        with facts_file.understood(path, COMMAND):
            return judge(read(path), catalogue)
    if kind is recorded.Kind.XML:
        node = {path.name: recorded.read_xml(path)}
        return worst_first(finding for rule in (*OF_XML, *rules.OF_GPUS) for finding in rule(node))
    log, faults = log_file.read(path)
    return log_judge.judge(str(path), log, catalogue, faults)


def judge(fleet: Fleet, catalogue: Catalogue) -> list[Finding]:
    """All findings: nodes are compared with those that have GPUs of the same model, the worst come first."""
    lost = preflight.judge({}, fleet.unasked)
    judged = [finding for nodes in by_model(fleet.nodes) for finding in _judge(nodes, catalogue)]
    findings = [*lost, *_merged(judged)]
    return worst_first([*findings, *_in_use(fleet.nodes, findings)])


def by_model(nodes: Nodes) -> list[Nodes]:
    """Groups of nodes with GPUs of one model; nodes whose model is not known stand with the largest group."""
    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for node, facts in nodes.items():
        models = {gpu["model"] for gpu in facts["gpu"].get("gpus") or () if gpu["model"]}
        groups.setdefault(" ".join(sorted(models)), {})[node] = facts
    unknown = groups.pop("", {})
    if not groups:
        return [unknown] if unknown else []
    largest = max(groups.values(), key=len)
    largest.update(unknown)
    return list(groups.values())


def _judge(nodes: Nodes, catalogue: Catalogue) -> list[Finding]:
    findings = preflight.judge(nodes, {}, preflight.OF_NODES)
    for rule in rules.RULES:
        findings += rule(nodes)
    return [*findings, *kernel.kernel_log(nodes, catalogue)]


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Of equal OKs of several groups one is enough; an OK of one group says nothing where another has a fault."""
    bad = {finding.check for finding in findings if finding.verdict is not Verdict.OK}
    kept = [f for f in findings if f.verdict is not Verdict.OK or f.subject or f.check not in bad]
    return list({(f.check, f.subject, f.verdict, f.message): f for f in kept}.values())


def _in_use(nodes: Nodes, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Who would be disturbed by what a node's faults need now."""
    for node, facts in nodes.items():
        needed = [f for f in findings if f.verdict is Verdict.FAIL and _is_about(f, node) and _disturbs(f)]
        if needed:
            for use in idle.idle({node: facts}):
                if use.verdict is not Verdict.OK:
                    verdict = Verdict.WARN if use.verdict is Verdict.FAIL else use.verdict
                    yield replace(
                        use, check="in-use", verdict=verdict, hint="notify its user before you act on the node"
                    )


def _is_about(finding: Finding, node: str) -> bool:
    return finding.subject == node or finding.subject.startswith(f"{node} ")


def _disturbs(finding: Finding) -> bool:
    return any(word in finding.hint.lower() for word in DISTURBING)
