"""Nodes that run the pods, or could: not ready, cordoned, or without working device plugin."""

from __future__ import annotations

from gpuctl.cluster.deploy.checks.nodes import away, name_of, of_adapters, of_gpus
from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import Object
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, warn
from gpuctl.domain.pod_status import is_ready
from gpuctl.domain.quantity import amount

PRESENT = "nvidia.com/gpu.present"  # a label of NVIDIA's feature discovery
PLUGIN = "its device plugin does not run, or considers them unhealthy: `kubectl get pods -A -o wide | grep plugin`"
AWAY = "see `kubectl describe node`; `kubectl uncordon` opens a cordoned node"


def nodes(facts: Facts) -> list[Finding]:
    """Report nodes' faults: failures if a pod there is not ready, or if pods wait for lack of usable nodes."""
    check, read = "nodes", facts.snapshot.nodes
    stuck = {pod["spec"].get("nodeName") for pod in facts.pods.values() if not is_ready(pod)}
    if read.why:  # most users may not read nodes, which matters only if a pod waits
        message = f"nodes cannot be read: {read.why}"
        return [unknown(check, facts.env.cluster.gpus.resource, message)] if stuck else []
    short = None in stuck and any(
        finding.check in ("gpus", "adapters") and finding.verdict is Verdict.FAIL for finding in facts.preflight
    )
    findings = []
    for node in read.value:
        why, hint = _wrong(facts, node)
        if why and (name_of(node) in stuck or (short and _meant(facts, node))):
            findings.append(fail(check, f"Node {name_of(node)}", why, hint))
        elif why and _ours(facts, node):
            findings.append(warn(check, f"Node {name_of(node)}", why, hint))
    return or_ok(check, facts.env.cluster.gpus.resource, findings)


def _wrong(facts: Facts, node: Object) -> tuple[str, str]:
    """Return a node's fault and a hint; two empty strings if it has none."""
    if why := away(node):
        return why, AWAY
    status = node.get("status") or {}
    has, offers = status.get("capacity") or {}, status.get("allocatable") or {}
    for name in {**of_gpus(facts.env), **of_adapters(facts.env)}:
        if (amount(has.get(name, "0")) or 0) > 0 and not amount(offers.get(name, "0")):
            return f"it has {has[name]} {name}, and none are allocatable", PLUGIN
    labels = node["metadata"].get("labels") or {}
    gpu = facts.env.cluster.gpus.resource
    if labels.get(PRESENT) == "true" and gpu not in has:
        return f"its label {PRESENT} says it has GPUs, and it offers no {gpu}", PLUGIN
    return "", ""


def _ours(facts: Facts, node: Object) -> bool:
    return any(pod["spec"].get("nodeName") == name_of(node) for pod in facts.pods.values())


def _meant(facts: Facts, node: Object) -> bool:
    """Return whether our pods may use a node: nodes.gpu_nodes lists it, or is empty and the node has or had GPUs."""
    named = facts.env.cluster.nodes.gpu_nodes
    labels = node["metadata"].get("labels") or {}
    capacity = (node.get("status") or {}).get("capacity") or {}
    return name_of(node) in named if named else facts.env.cluster.gpus.resource in capacity or PRESENT in labels
