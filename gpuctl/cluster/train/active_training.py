"""Detect running trainings in an environment's pods before something ends those pods."""

from __future__ import annotations

from gpuctl.cluster import pod_selection
from gpuctl.cluster.deploy.model import Change, Plan
from gpuctl.cluster.environment import CONTAINER, Environment
from gpuctl.cluster.probe import flow, judge
from gpuctl.cluster.probe.model import ProbeRequest
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote.model import PodTarget

COUNT = "spec.replicas"


def find_active(cluster: Cluster, env: Environment) -> list[Finding]:
    """Return FAIL for a pod that trains and UNKNOWN for a running one that does not answer; takes at most a minute."""
    pods = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    targets = [
        PodTarget(cluster, pod_selection.name_of(pod), CONTAINER) for pod in pods if not pod_selection.why_not(pod)
    ]
    if not targets:
        return []
    facts, _ = flow.probe(targets, ProbeRequest([]))
    silent = {
        answer.pod: f"cannot determine whether something is training there: {answer.unread}"
        for answer in facts
        if answer.unread
    }
    return [*judge.trainings(facts), *judge.together("busy", Verdict.UNKNOWN, silent)]


def ends_pods(plan: Plan) -> bool:
    """Return whether a deployment ends running pods: changed template, fewer replicas, or recreated objects."""
    pod_changes = [change for change in plan.changes if change.kind in ("StatefulSet", "Pod")]
    return any(
        change.action in ("recreate", "remove") or (change.action in ("change", "take-over") and _ends(change))
        for change in pod_changes
    )


def _ends(change: Change) -> bool:
    for field in change.fields:
        if field.path.startswith("spec.template") or (field.path == COUNT and int(field.after) < int(field.before)):
            return True
    return False
