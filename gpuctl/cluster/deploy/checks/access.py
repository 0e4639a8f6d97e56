"""Preflight of access: served kinds, rights, free names, the namespace and its security level."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.deploy.model import OPTIONAL_KINDS, ObjectState, is_ours, is_terminating
from gpuctl.cluster.environment import MANAGED, Environment, Object
from gpuctl.cluster.manifests import rights, storage
from gpuctl.domain.findings import Finding, Verdict

ENFORCED = "pod-security.kubernetes.io/enforce"
ANOTHER_NAMESPACE = "wait, or use another namespace"
OTHER_NAME = "choose another name for the environment (--environment), or remove it"

HINTS = {
    "SecurityContextConstraints": "an admin can grant existing ones to an account, which security.service_account names"
}
AFTER_DELETION = "wait until it is gone; a volume is deleted once no pod mounts it, so save its data before that"


def kinds(states: Sequence[ObjectState]) -> list[Finding]:
    """Report kinds that the cluster does not serve."""
    lacking = dict.fromkeys(
        (state.desired["kind"], state.desired["apiVersion"]) for state in states if not state.served
    )
    return [_not_served(kind, f"the cluster does not serve {kind} of {version}") for kind, version in lacking]


def _not_served(kind: str, message: str) -> Finding:
    if kind in OPTIONAL_KINDS:
        return Finding("kinds", kind, Verdict.WARN, f"{message}: {OPTIONAL_KINDS[kind]}")
    return Finding("kinds", kind, Verdict.FAIL, message, hint="check cluster.flavour in the cluster file")


def verbs(snapshot: ClusterSnapshot) -> list[Finding]:
    """Report missing rights, one finding per kind."""
    lacking: dict[str, list[str]] = {}
    unknown: dict[str, str] = {}
    for (verb, kind), may in snapshot.may.items():
        if may.why:
            unknown[kind] = may.why
        elif not may.value:
            lacking.setdefault(kind, []).append(verb)
    hint = "ask for a role that allows it; `kubectl auth can-i --list` shows what you may do"
    findings = [
        Finding(
            "rights",
            kind,
            Verdict.FAIL,
            f"you have no permission to {', '.join(verbs)} objects of this kind",
            hint=HINTS.get(kind, hint),
        )
        for kind, verbs in lacking.items()
    ]
    findings += [Finding("rights", kind, Verdict.UNKNOWN, why) for kind, why in unknown.items()]
    return findings or [Finding("rights", snapshot.server, Verdict.OK, "you have all rights that are needed")]


def names(env: Environment, states: Sequence[ObjectState]) -> list[Finding]:
    """Report objects of the same name that belong to somebody else; they are left alone."""
    findings = [_not_ours(state.subject, state.live) for state in states if state.live and not is_ours(env, state.live)]
    findings += [Finding("names", state.subject, Verdict.UNKNOWN, state.unread) for state in states if state.unread]
    return findings


def _not_ours(subject: str, live: Object) -> Finding:
    manager = (live["metadata"].get("labels") or {}).get(MANAGED)
    owner = (
        f", and belongs to {manager}"
        if manager and manager != "gpuctl"
        else ", and belongs to another environment"
        if manager
        else ""
    )
    return Finding(
        "names", subject, Verdict.FAIL, f"it exists and is not ours{owner}; it is left alone", hint=OTHER_NAME
    )


def volumes(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Report foreign claims that the StatefulSet would adopt, because it selects claims by name."""
    mine = storage.of_templates(env)
    taken = [claim for claim in snapshot.claims.value if claim["metadata"]["name"] in mine and not is_ours(env, claim)]
    return [_not_ours(f"PersistentVolumeClaim {claim['metadata']['name']}", claim) for claim in taken]


def terminating(env: Environment, snapshot: ClusterSnapshot, states: Sequence[ObjectState]) -> list[Finding]:
    """Report objects that are being deleted: nothing can stop that, though they still exist."""
    mine = storage.of_templates(env)
    claims = [claim for claim in snapshot.claims.value if claim["metadata"]["name"] in mine and is_terminating(claim)]
    subjects = [state.subject for state in states if state.terminating]
    subjects += [f"PersistentVolumeClaim {claim['metadata']['name']}" for claim in claims]
    return [
        Finding("being deleted", subject, Verdict.FAIL, "it is being deleted", hint=AFTER_DELETION)
        for subject in subjects
    ]


def namespace(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check that the namespace exists; gpuctl creates none, since a new one would have neither quota nor rights."""
    live, why = snapshot.namespace.value, snapshot.namespace.why
    if why:
        return [Finding("namespace", env.namespace, Verdict.UNKNOWN, why)]
    if live is None:
        make = "oc new-project" if env.openshift else "kubectl create namespace"
        hint = f"run `{make} {env.namespace}`, or correct cluster.namespace"
        return [Finding("namespace", env.namespace, Verdict.FAIL, "the namespace does not exist", hint=hint)]
    if (live.get("status") or {}).get("phase") == "Terminating":
        return [
            Finding("namespace", env.namespace, Verdict.FAIL, "the namespace is being deleted", hint=ANOTHER_NAMESPACE)
        ]
    return [Finding("namespace", env.namespace, Verdict.OK)]


def level(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Compare the namespace's pod security level with what the pods request."""
    labels = ((snapshot.namespace.value or {}).get("metadata") or {}).get("labels") or {}
    enforced = labels.get(ENFORCED, "privileged")
    more = rights.capabilities(env)
    wants = [f"the capabilities {', '.join(more)}"] if more else []
    if env.rdma and env.cluster.network.rdma.host_network:
        wants.append("the node's network")
    if rights.constraints_name(env) == rights.PRIVILEGED:
        wants.append("to be privileged")
    if enforced == "restricted" and env.rdma and env.cluster.security.rdma_as_root:
        wants.append("to run as root")
    if not wants or enforced == "privileged":
        return []
    message = f"its security level is {enforced}, and the pods need {' and '.join(wants)}"
    hint = f"ask its admin for the label {ENFORCED}=privileged, or use --mode tcp"
    return [Finding("security level", env.namespace, Verdict.FAIL, message, hint=hint)]
