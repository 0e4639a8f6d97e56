"""Preflight of RDMA besides adapters: OpenShift's security constraints, and Multus networks."""

from __future__ import annotations

from gpuctl.cluster.deploy.checks.not_installed import not_installed
from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import rights
from gpuctl.domain.findings import Finding, Verdict

NETWORK = "NetworkAttachmentDefinition"


def constraints(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the security constraints exist, and that we may grant them to the pods' account."""
    name = rights.constraints_to_grant(env)
    if not name:
        return []
    subject = f"SecurityContextConstraints {name}"
    unread = snapshot.constraints.why if name == rights.PRIVILEGED else ""
    if name == rights.PRIVILEGED and snapshot.constraints.value is None and not unread:
        message = "these constraints do not exist, and security.requires_privileged_scc needs them"
        return [Finding("constraints", subject, Verdict.FAIL, message, hint="is this an OpenShift cluster?")]
    if snapshot.may_use.why:
        return [Finding("constraints", subject, Verdict.UNKNOWN, snapshot.may_use.why)]
    if not snapshot.may_use.value:
        message = "you have no permission to use them, and so cannot grant them to the pods' account"
        return [Finding("constraints", subject, Verdict.FAIL, message, hint=_ask_for(env, name))]
    return [Finding("constraints", subject, Verdict.UNKNOWN if unread else Verdict.OK, unread)]


def _ask_for(env: Environment, name: str) -> str:
    """Return what an admin has to do; constraints of our own do not exist, so existing ones are to be granted."""
    account = env.cluster.security.service_account
    existing = name if name == rights.PRIVILEGED else "CONSTRAINTS"
    needs = "" if existing == name else f" with constraints that allow {', '.join(rights.capabilities(env))}"
    grant = f"`oc adm policy add-scc-to-user {existing} -z {account or 'ACCOUNT'} -n {env.namespace}`{needs}"
    naming = "" if account else ", and name the account in security.service_account"
    return f"ask an admin for {grant}{naming}; or use --mode tcp"


def attachments(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the networks exist that Multus attaches to the pods."""
    findings = []
    for name, read in snapshot.attachments.items():
        subject = f"{NETWORK} {name}"
        if NETWORK in snapshot.unserved:
            findings.append(not_installed("networks", NETWORK, name, "network.rdma.attachments"))
        elif read.why:
            findings.append(Finding("networks", subject, Verdict.UNKNOWN, read.why))
        elif read.value is None:
            hint = f"network.rdma.attachments: `kubectl get net-attach-def -n {env.namespace}` lists those that exist"
            findings.append(Finding("networks", subject, Verdict.FAIL, "the network does not exist", hint=hint))
    return findings or [Finding("networks", env.namespace, Verdict.OK)] * bool(snapshot.attachments)
