"""Judge nodes by the rules of the audit, and those of the NCCL preflight that hold without a run. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.audit import kernel, rules
from gpuctl.audit.formats.model import FILE
from gpuctl.audit.rules import diagnostics, links, storage, topology
from gpuctl.audit.rules.gpus import GpuRule
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, ok, unknown, worst_first
from gpuctl.domain.gpu_errors import Catalogue, DcgmError
from gpuctl.domain.gpu_health import MEMORY
from gpuctl.domain.node_facts import ABSENT
from gpuctl.domain.node_facts import Fleet as Nodes
from gpuctl.nccl import preflight
from gpuctl.nccl.preflight import fabric, gpus, idle
from gpuctl.nccl.preflight.facts_file import Fleet

Rule = Callable[[Nodes], list[Finding]]
# Rules on GPUs for which nvidia-smi is enough, and the values that each needs; one without any is not judged.
OF_GPUS: tuple[tuple[str, Rule, tuple[str, ...]], ...] = (
    ("gpu-model", gpus.model, ("model",)),
    ("gpu-memory", gpus.memory, MEMORY),
    ("clocks", gpus.clocks, ("slowed_by",)),
    *((rule.check, rule, (rule.value,)) for rule in rules.OF_GPUS if isinstance(rule, GpuRule)),
    ("power-limit", rules.gpus.power_limit, ("power_limit_w",)),
)
# Rules on other outputs, by the subject that they judge.
OF_OUTPUTS: Mapping[str, Rule] = {
    "pcie": links.lanes,
    "nvlink": links.nvlink,
    "nvlink_errors": links.nvlink_errors,
    "totals": links.totals,
    "topology": topology.topology,
    "rdma": fabric.adapters_,
    "storage": storage.storage,
}
NOTIFY = "notify its user before you act on the node"


def judge(fleet: Fleet, catalogue: Catalogue) -> list[Finding]:
    """All findings: nodes are compared with those that have GPUs of the same model, the worst come first."""
    lost = preflight.judge({}, fleet.unasked)
    judged = [finding for nodes in by_model(fleet.nodes) for finding in _judge(nodes, catalogue)]
    return worst_first([*lost, *_merged(judged), *_in_use(fleet.nodes, judged)])


def judge_outputs(nodes: Nodes, dcgm_errors: Mapping[int, DcgmError]) -> list[Finding]:
    """Findings for nodes of which only outputs of some programs are known; what was not recorded is not judged."""
    judged = [finding for group in by_model(nodes) for finding in _outputs(group, dcgm_errors)]
    return worst_first(_merged(judged))


def _outputs(nodes: Nodes, dcgm_errors: Mapping[int, DcgmError]) -> Iterator[Finding]:
    yield from _gpus({node: facts for node, facts in nodes.items() if "gpu" in facts})
    for subject, rule in OF_OUTPUTS.items():
        recorded = {node: facts for node, facts in nodes.items() if subject in facts}
        yield from rule(recorded) if recorded else ()
    yield from diagnostics.diagnostics({node: f for node, f in nodes.items() if "dcgm" in f}, dcgm_errors)


def _gpus(nodes: Nodes) -> Iterator[Finding]:
    """Findings about GPUs; one names the checks for which the output has no value."""
    if not nodes:
        return
    yield from gpus.count(nodes)
    versions = {node: facts for node, facts in nodes.items() if facts["gpu"]["unread"].get("driver") != ABSENT}
    yield from gpus.driver(versions) if versions else ()
    unjudged: dict[str, list[str]] = {node: [] for node in nodes}
    for check, rule, values in OF_GPUS:
        known = {node: facts for node, facts in nodes.items() if not _lacks(facts, values)}
        for node in nodes.keys() - known.keys():
            unjudged[node].append(check)
        yield from rule(known) if known else ()
    yield from gpus.fabric_reports(nodes)
    for node, checks in unjudged.items():
        if "gpu-memory" in checks:
            yield from _errors(node, nodes[node])
        if len(checks) == len(OF_GPUS):
            yield unknown(FILE, node, "the output has no value that is judged", "save nvidia-smi -q -x")
        elif checks:
            yield ok(FILE, node, f"not in the output, and so not judged: {named(checks, 16)}")


def _lacks(facts: Mapping[str, Any], values: Sequence[str]) -> bool:
    """True if no GPU has any of the values, because the output is a part that leaves them out."""
    every = [gpu["unread"].get(value) for gpu in facts["gpu"].get("gpus") or () for value in values]
    return bool(every) and all(reason == ABSENT for reason in every)


def _errors(node: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Errors in place of values, where nothing else is known of a GPU's memory."""
    bare = [{**gpu, "unread": {}} for gpu in facts["gpu"]["gpus"]]
    findings = gpus.memory({node: {**facts, "gpu": {**facts["gpu"], "gpus": bare}}})
    yield from (finding for finding in findings if finding.verdict is Verdict.FAIL)


def by_model(nodes: Nodes) -> list[Nodes]:
    """Groups of nodes with GPUs of one model; nodes whose model is not known stand with the largest group."""
    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for node, facts in nodes.items():
        models = {gpu["model"] for gpu in facts.get("gpu", {}).get("gpus") or () if gpu["model"]}
        groups.setdefault(" ".join(sorted(models)), {})[node] = facts
    unknown = groups.pop("", {})
    if not groups:
        return [unknown] if unknown else []
    largest = max(groups.values(), key=len)
    largest.update(unknown)
    return list(groups.values())


def _judge(nodes: Nodes, catalogue: Catalogue) -> list[Finding]:
    findings = preflight.judge(nodes, {}, (*preflight.OF_NODES, *rules.RULES))
    diagnosed = {node: facts for node, facts in nodes.items() if "dcgm" in facts}
    deep = diagnostics.diagnostics(diagnosed, catalogue.dcgm_errors)
    stored = {node: facts for node, facts in nodes.items() if "storage" in facts}  # facts of older audits lack it
    findings += storage.storage(stored) if stored else []
    return [*findings, *kernel.kernel_log(nodes, catalogue), *deep]


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
