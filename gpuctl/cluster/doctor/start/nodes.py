"""Nodes that the pods are on, or would be: gone, closed, or without what their device plugin offers."""

from __future__ import annotations

from gpuctl.cluster.deploy.checks.nodes import away, name_of, of_adapters, of_gpus
from gpuctl.cluster.deploy.quantity import amount
from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import Object
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, warn
from gpuctl.domain.pod_status import is_ready

PRESENT = "nvidia.com/gpu.present"  # a label of NVIDIA's feature discovery
PLUGIN = "its device plugin does not run there, or finds them unhealthy: `kubectl get pods -A -o wide | grep plugin`"
AWAY = "`kubectl describe node` says more; a cordoned one is opened by `kubectl uncordon`"


def nodes(facts: Facts) -> list[Finding]:
    """A node is to blame where a pod on it is not ready, or where pods wait and too few nodes can take them."""
    check, read = "nodes", facts.there.nodes
    stuck = {pod["spec"].get("nodeName") for pod in facts.pods.values() if not is_ready(pod)}
    if read.why:  # most users may not: that matters only where a pod waits
        message = f"nodes cannot be looked at: {read.why}"
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
    """The fault of a node, and what to try."""
    if why := away(node):
        return why, AWAY
    status = node.get("status") or {}
    has, offers = status.get("capacity") or {}, status.get("allocatable") or {}
    for name in {**of_gpus(facts.env), **of_adapters(facts.env)}:
        if (amount(has.get(name, "0")) or 0) > 0 and not amount(offers.get(name, "0")):
            return f"it has {has[name]} {name}, and offers none of them", PLUGIN
    labels = node["metadata"].get("labels") or {}
    gpu = facts.env.cluster.gpus.resource
    if labels.get(PRESENT) == "true" and gpu not in has:
        return f"it has GPUs by its label {PRESENT}, and offers no {gpu}", PLUGIN
    return "", ""


def _ours(facts: Facts, node: Object) -> bool:
    return any(pod["spec"].get("nodeName") == name_of(node) for pod in facts.pods.values())


def _meant(facts: Facts, node: Object) -> bool:
    """Return whether our pods may use a node: it is named, or none is and it has or had GPUs."""
    named = facts.env.cluster.nodes.gpu_nodes
    labels = node["metadata"].get("labels") or {}
    capacity = (node.get("status") or {}).get("capacity") or {}
    return name_of(node) in named if named else facts.env.cluster.gpus.resource in capacity or PRESENT in labels
