"""Preflight of RDMA besides adapters: OpenShift's security constraints, and Multus networks."""

from __future__ import annotations

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import rights
from gpuctl.domain.findings import Finding, Verdict


def constraints(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the security constraints exist, and that we may grant them to the pods' account."""
    name = rights.constraints_name(env)
    if not name:
        return []
    subject = f"SecurityContextConstraints {name}"
    if name == rights.PRIVILEGED and snapshot.constraints.value is None:
        if snapshot.constraints.why:
            return [Finding("constraints", subject, Verdict.UNKNOWN, snapshot.constraints.why)]
        message = "these constraints do not exist, and security.requires_privileged_scc needs them"
        return [Finding("constraints", subject, Verdict.FAIL, message, hint="is this an OpenShift cluster?")]
    if snapshot.may_use.why:
        return [Finding("constraints", subject, Verdict.UNKNOWN, snapshot.may_use.why)]
    if not snapshot.may_use.value:
        message = "you may not use them, and so may not grant them to the pods' account"
        hint = f"ask an admin: `oc adm policy add-scc-to-user {name} YOU -n {env.namespace}`, or take --mode tcp"
        return [Finding("constraints", subject, Verdict.FAIL, message, hint=hint)]
    return [Finding("constraints", subject, Verdict.OK)]


def attachments(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the networks exist that Multus attaches to the pods."""
    findings = []
    for name, read in snapshot.attachments.items():
        subject = f"NetworkAttachmentDefinition {name}"
        if read.why:
            findings.append(Finding("networks", subject, Verdict.UNKNOWN, read.why))
        elif read.value is None:
            hint = f"network.rdma.attachments: `kubectl get net-attach-def -n {env.namespace}` lists those that exist"
            findings.append(Finding("networks", subject, Verdict.FAIL, "the network does not exist", hint=hint))
    return findings or [Finding("networks", env.namespace, Verdict.OK)] * bool(snapshot.attachments)
