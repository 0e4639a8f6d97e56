"""What RDMA pods need besides adapters: constraints that let them in, and networks."""

from __future__ import annotations

from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import rights
from gpuctl.domain.findings import Finding, Verdict


def constraints(env: Environment, there: There) -> list[Finding]:
    """OpenShift's constraints: those of its own are there, and we may let the pods' account use them."""
    name = rights.constraints_name(env)
    if not name:
        return []
    subject = f"SecurityContextConstraints {name}"
    if name == rights.PRIVILEGED and there.constraints.value is None:
        if there.constraints.why:
            return [Finding("constraints", subject, Verdict.UNKNOWN, there.constraints.why)]
        words = "there are no such constraints, and security.requires_privileged_scc wants them"
        return [Finding("constraints", subject, Verdict.FAIL, words, hint="is this an OpenShift cluster?")]
    if there.may_use.why:
        return [Finding("constraints", subject, Verdict.UNKNOWN, there.may_use.why)]
    if not there.may_use.value:
        words = "you may not use them, and so may not let the pods' account use them"
        hint = f"ask an admin: `oc adm policy add-scc-to-user {name} YOU -n {env.namespace}`, or take --mode tcp"
        return [Finding("constraints", subject, Verdict.FAIL, words, hint=hint)]
    return [Finding("constraints", subject, Verdict.OK)]


def attachments(env: Environment, there: There) -> list[Finding]:
    """The networks that Multus is to bring in."""
    found = []
    for name, read in there.attachments.items():
        subject = f"NetworkAttachmentDefinition {name}"
        if read.why:
            found.append(Finding("networks", subject, Verdict.UNKNOWN, read.why))
        elif read.value is None:
            hint = f"network.rdma.attachments: `kubectl get net-attach-def -n {env.namespace}` lists what is there"
            found.append(Finding("networks", subject, Verdict.FAIL, "there is no such network", hint=hint))
    return found or [Finding("networks", env.namespace, Verdict.OK)] * bool(there.attachments)
