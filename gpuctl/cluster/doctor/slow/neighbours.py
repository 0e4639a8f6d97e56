"""Other pods on the same node, and the processors that they use."""

from __future__ import annotations

from gpuctl.cluster.deploy.checks.nodes import requested
from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.doctor.model import Facts
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

# Shares of a node's processors; this project's own choice.
MUCH, ALL = 0.25, 0.95


def neighbours(facts: Facts) -> list[Finding]:
    """Check that others use few of the node's processors."""
    check, findings = "neighbours", []
    for name, inside in facts.answering("machine").items():
        busy, used, cpus = (inside.get("machine", counter) for counter in ("node_busy", "cpu_used", "cpus"))
        if None in (busy, used, cpus):
            findings.append(unknown(check, f"Pod {name}", "the load of its node cannot be read"))
            continue
        others = max(0.0, busy - used)
        if others <= cpus * MUCH:
            continue
        report = fail if busy > cpus * ALL else warn
        message = f"others use {others:.1f} of its node's {cpus} processors{_who(facts, name)}"
        findings.append(
            report(check, f"Pod {name}", message, "`kubectl top pods -A`; taint GPU nodes to keep other pods away")
        )
    return or_ok(check, facts.env.name, findings) if facts.answering("machine") else []


def _who(facts: Facts, name: str) -> str:
    """Name other pods on the node, largest CPU request first."""
    if facts.snapshot.pods.why:
        return ""
    node = facts.pods[name]["spec"].get("nodeName")
    others = [
        pod for pod in facts.snapshot.pods.value if pod["spec"].get("nodeName") == node and not is_ours(facts.env, pod)
    ]
    largest = sorted(others, key=lambda pod: -requested(pod, "cpu"))
    names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in largest]
    return f"; other pods there: {named(names, 3)}" if names else ""
