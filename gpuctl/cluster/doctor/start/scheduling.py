"""Why no node takes a pod: the scheduler's reason, autoscalers, resource claims, and the node selector."""

from __future__ import annotations

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.deploy.checks.nodes import CORRECT_SELECTOR, SELECTOR, unmatched_selector
from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import Object
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown
from gpuctl.domain.pod_status import why_pending

# Preflight checks that explain why no node has room: which pods use the GPUs, for example.
ABOUT_NODES = ("gpus", "adapters", "room", "in use")
# Reason of an event -> who decides about a node besides the scheduler, and what it decided: the cluster autoscaler
# (core/scaleup/orchestrator), the controller of resource claims (pkg/controller/resourceclaim), Karpenter
# (provisioning/scheduling/events.go).
EVENTS = {
    "NotTriggerScaleUp": ("autoscaler", "the cluster autoscaler adds no node"),
    "TriggeredScaleUp": ("autoscaler", "the cluster autoscaler is adding a node"),
    "FailedResourceClaimCreation": ("claims", "its resource claim (DRA) cannot be created"),
    "Nominated": ("karpenter", "Karpenter is adding a node"),
}
KARPENTER = ("karpenter", "Karpenter adds no node")  # its event has the scheduler's reason, FailedScheduling


def scheduled(facts: Facts) -> list[Finding]:
    """Check that every pod has a node; else report the reasons of scheduler and autoscalers, and the nodes' state."""
    check, findings = "scheduled", list[Finding]()
    waiting = {name: pod for name, pod in facts.pods.items() if not pod["spec"].get("nodeName")}
    for name, pod in waiting.items():
        reason, others = why_pending(pod), _others(facts, pod)
        if reason:
            message = "; ".join([f"no node takes it: {pod_progress.placing(reason)}", *others])
            findings.append(fail(check, f"Pod {name}", message))
        elif others:
            findings.append(fail(check, f"Pod {name}", f"it has no node: {'; '.join(others)}"))
        else:
            hint = "check that the cluster's scheduler runs: `kubectl get pods -n kube-system`"
            findings.append(unknown(check, f"Pod {name}", "it has no node, and the scheduler gives no reason", hint))
    if waiting:
        findings += _unmatched_selector(facts)
        about_nodes = [
            finding for finding in facts.preflight if finding.check in ABOUT_NODES and finding.subject != SELECTOR
        ]
        findings += [
            fail(check, finding.subject, finding.message, finding.hint) for finding in filter(_bad, about_nodes)
        ]
    return or_ok(check, facts.env.name, findings)


def _others(facts: Facts, pod: Object) -> list[str]:
    """Return the latest decision of each controller besides the scheduler."""
    latest: dict[str, str] = {}
    for event in facts.events_of(pod):
        if decision := _decision(event):
            actor, text = decision
            latest[actor] = f"{text}: {' '.join(str(event.get('message') or 'no reason given').split())[:300]}"
    return list(latest.values())


def _decision(event: Object) -> tuple[str, str] | None:
    reporters = (event.get("reportingComponent"), (event.get("source") or {}).get("component"))
    if event.get("reason") == "FailedScheduling":
        return KARPENTER if "karpenter" in reporters else None
    return EVENTS.get(str(event.get("reason")))


def _unmatched_selector(facts: Facts) -> list[Finding]:
    """Report a node selector that matches no node, with the labels that no node has."""
    nodes = facts.snapshot.nodes
    why = "" if nodes.why else unmatched_selector(facts.env.cluster.nodes.selector, nodes.value)
    return [fail("scheduled", SELECTOR, why, CORRECT_SELECTOR)] if why else []


def _bad(finding: Finding) -> bool:
    return finding.verdict in (Verdict.FAIL, Verdict.WARN)
