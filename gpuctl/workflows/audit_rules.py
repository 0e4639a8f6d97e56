"""Judge nodes by the rules of the audit, and those of the NCCL preflight that hold without a run. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.audit import kernel, rules
from gpuctl.domain.findings import Finding, Verdict, worst_first
from gpuctl.domain.gpu_errors import Catalogue
from gpuctl.domain.node_facts import Fleet as Nodes
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight import gpus, idle
from gpuctl.nccl.preflight.facts_file import Fleet

# Rules for which nvidia-smi's XML is enough.
OF_XML = (gpus.count, gpus.model, gpus.driver, gpus.memory, gpus.clocks, *rules.OF_GPUS)
NOTIFY = "notify its user before you act on the node"


def judge(fleet: Fleet, catalogue: Catalogue) -> list[Finding]:
    """All findings: nodes are compared with those that have GPUs of the same model, the worst come first."""
    lost = preflight.judge({}, fleet.unasked)
    judged = [finding for nodes in by_model(fleet.nodes) for finding in _judge(nodes, catalogue)]
    return worst_first([*lost, *_merged(judged), *_in_use(fleet.nodes, judged)])


def judge_gpus(nodes: Nodes) -> list[Finding]:
    """Findings for nodes of which only the output of nvidia-smi is known."""
    return worst_first(finding for rule in OF_XML for finding in rule(nodes))


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
    findings = preflight.judge(nodes, {}, (*preflight.OF_NODES, *rules.RULES))
    return [*findings, *kernel.kernel_log(nodes, catalogue)]


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Of equal OKs of several groups one is enough; an OK of one group says nothing where another has a fault."""
    bad = {finding.check for finding in findings if finding.verdict is not Verdict.OK}
    kept = [f for f in findings if f.verdict is not Verdict.OK or f.subject or f.check not in bad]
    return list({(f.check, f.subject, f.verdict, f.message): f for f in kept}.values())


def _in_use(nodes: Nodes, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Users of the nodes with a FAIL: whatever is done about it disturbs them."""
    # The subject is the node, or a part of it: "node-3 GPU 0000:18:00.0".
    failed = {finding.subject.partition(" ")[0] for finding in findings if finding.verdict is Verdict.FAIL}
    for node, facts in nodes.items():
        for use in idle.idle({node: facts}) if node in failed else ():
            if use.verdict is not Verdict.OK:
                verdict = Verdict.WARN if use.verdict is Verdict.FAIL else use.verdict
                yield replace(use, check="in-use", verdict=verdict, hint=NOTIFY)
