"""What RDMA pods need besides adapters: constraints that let them in, and networks."""

from __future__ import annotations

from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.deploy.model import Finding
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import rights
from gpuctl.domain.findings import Verdict


def constraints(env: Environment, snapshot: There) -> list[Finding]:
    """OpenShift's constraints: those of its own are there, and we may let the pods' account use them."""
    name = rights.constraints_name(env)
    if not name:
        return []
    subject = f"SecurityContextConstraints {name}"
    if name == rights.PRIVILEGED and snapshot.constraints.value is None:
        if snapshot.constraints.why:
            return [Finding("constraints", subject, Verdict.UNKNOWN, snapshot.constraints.why)]
        message = "there are no such constraints, and security.requires_privileged_scc wants them"
        return [Finding("constraints", subject, Verdict.FAIL, message, "is this an OpenShift cluster?")]
    if snapshot.may_use.why:
        return [Finding("constraints", subject, Verdict.UNKNOWN, snapshot.may_use.why)]
    if not snapshot.may_use.value:
        message = "you may not use them, and so may not let the pods' account use them"
        hint = f"ask an admin: `oc adm policy add-scc-to-user {name} YOU -n {env.namespace}`, or take --mode tcp"
        return [Finding("constraints", subject, Verdict.FAIL, message, hint)]
    return [Finding("constraints", subject, Verdict.OK)]


def attachments(env: Environment, snapshot: There) -> list[Finding]:
    """The networks that Multus is to bring in."""
    findings = []
    for name, read in snapshot.attachments.items():
        subject = f"NetworkAttachmentDefinition {name}"
        if read.why:
            findings.append(Finding("networks", subject, Verdict.UNKNOWN, read.why))
        elif read.value is None:
            hint = f"network.rdma.attachments: `kubectl get net-attach-def -n {env.namespace}` lists what is there"
            findings.append(Finding("networks", subject, Verdict.FAIL, "there is no such network", hint))
    return findings or [Finding("networks", env.namespace, Verdict.OK)] * bool(snapshot.attachments)
