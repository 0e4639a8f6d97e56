"""What trains in an environment's pods now: asked before something ends them."""

from __future__ import annotations

from gpuctl.cluster import pod_selection
from gpuctl.cluster.deploy.model import Change, Plan
from gpuctl.cluster.environment import CONTAINER, Environment
from gpuctl.cluster.probe import flow, judge
from gpuctl.cluster.probe.model import Wanted
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote.model import There

COUNT = "spec.replicas"


def look(cluster: Cluster, env: Environment) -> list[Finding]:
    """FAIL for a pod in which something trains, UNKNOWN for one that runs and cannot be asked; at most a minute."""
    found = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    theirs = [
        There(cluster, pod_selection.name_of(each), CONTAINER) for each in found if not pod_selection.why_not(each)
    ]
    if not theirs:
        return []
    facts, _ = flow.ask(theirs, Wanted([]))
    silent = {each.pod: f"nobody knows whether something trains there: {each.unread}" for each in facts if each.unread}
    return [*judge.trainings(facts), *judge.together("busy", Verdict.UNKNOWN, silent)]


def ends_pods(plan: Plan) -> bool:
    """Whether a deployment ends pods that run: of another form, fewer, or made anew."""
    of_pods = [each for each in plan.changes if each.kind in ("StatefulSet", "Pod")]
    return any(each.action in ("recreate", "remove") or (each.action == "change" and _ends(each)) for each in of_pods)


def _ends(change: Change) -> bool:
    for each in change.fields:
        if each.path.startswith("spec.template") or (each.path == COUNT and int(each.after) < int(each.before)):
            return True
    return False
