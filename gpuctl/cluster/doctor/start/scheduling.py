"""Whether each pod has a node, and why none takes it."""

from __future__ import annotations

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.doctor.model import Facts
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown
from gpuctl.domain.pod_status import why_not_placed

# What the preflight knows of nodes, now that pods wait for them: who has the GPUs among it.
ABOUT_NODES = ("gpus", "adapters", "room", "in use")


def placed(facts: Facts) -> list[Finding]:
    """The scheduler's own words, and what the cluster shows of the nodes meanwhile."""
    check, found = "placed", []
    waiting = {name: pod for name, pod in facts.pods.items() if not pod["spec"].get("nodeName")}
    for name, pod in waiting.items():
        if said := why_not_placed(pod):
            found.append(fail(check, f"Pod {name}", f"no node takes it: {pod_progress.placing(said)}"))
        else:
            hint = "does the cluster's scheduler run? `kubectl get pods -n kube-system`"
            found.append(unknown(check, f"Pod {name}", "it has no node, and the scheduler says nothing of it", hint))
    if waiting:
        more = [each for each in facts.preflight if each.check in ABOUT_NODES]
        found += [fail(check, each.subject, each.message, each.hint) for each in more if _tells(each)]
    return or_ok(check, facts.env.name, found)


def _tells(found: Finding) -> bool:
    return found.verdict in (Verdict.FAIL, Verdict.WARN)
