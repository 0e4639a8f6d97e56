"""Whether we may do what has to be done, and whether the names are free."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.deploy.model import SPARED, Standing, is_going, is_ours
from gpuctl.cluster.environment import MANAGED, Environment, Object
from gpuctl.cluster.manifests import rights, storage
from gpuctl.domain.findings import Finding, Verdict

ENFORCED = "pod-security.kubernetes.io/enforce"
OTHER_NAME = "give the environment another name (--environment), or remove it"

STILL_THERE = "wait until it is gone; a volume goes once no pod has it, and data in it has to be saved before that"


def kinds(standing: Sequence[Standing]) -> list[Finding]:
    """The kinds that the cluster does not know."""
    lacking = dict.fromkeys((s.wanted["kind"], s.wanted["apiVersion"]) for s in standing if not s.served)
    return [_not_served(kind, f"the cluster does not serve {kind} of {version}") for kind, version in lacking]


def _not_served(kind: str, words: str) -> Finding:
    if kind in SPARED:
        return Finding("kinds", kind, Verdict.WARN, f"{words}: {SPARED[kind]}")
    return Finding("kinds", kind, Verdict.FAIL, words, hint="is it of the flavour that the cluster file says?")


def verbs(there: There) -> list[Finding]:
    """What we may not do, one finding a kind."""
    lacking: dict[str, list[str]] = {}
    unknown: dict[str, str] = {}
    for (verb, kind), may in there.may.items():
        if may.why:
            unknown[kind] = may.why
        elif not may.value:
            lacking.setdefault(kind, []).append(verb)
    hint = "ask for a role that allows it; `kubectl auth can-i --list` shows what you may do"
    found = [
        Finding("rights", kind, Verdict.FAIL, f"you may not {', '.join(verbs)} objects of this kind", hint=hint)
        for kind, verbs in lacking.items()
    ]
    found += [Finding("rights", kind, Verdict.UNKNOWN, why) for kind, why in unknown.items()]
    return found or [Finding("rights", there.server, Verdict.OK, "you may do all that is needed")]


def names(env: Environment, standing: Sequence[Standing]) -> list[Finding]:
    """Objects of the same name that are not ours: they are left alone."""
    found = [_not_ours(each.subject, each.live) for each in standing if each.live and not is_ours(env, each.live)]
    found += [Finding("names", each.subject, Verdict.UNKNOWN, each.unread) for each in standing if each.unread]
    return found


def _not_ours(subject: str, live: Object) -> Finding:
    by = (live["metadata"].get("labels") or {}).get(MANAGED)
    owner = f", and belongs to {by}" if by and by != "gpuctl" else ", and belongs to another environment" if by else ""
    return Finding(
        "names", subject, Verdict.FAIL, f"it is there, is not ours{owner}; it is left alone", hint=OTHER_NAME
    )


def volumes(env: Environment, there: There) -> list[Finding]:
    """Claims of others that the StatefulSet would take for its own, for it goes by their names."""
    mine = storage.of_templates(env)
    taken = [each for each in there.claims.value if each["metadata"]["name"] in mine and not is_ours(env, each)]
    return [_not_ours(f"PersistentVolumeClaim {each['metadata']['name']}", each) for each in taken]


def going(env: Environment, there: There, standing: Sequence[Standing]) -> list[Finding]:
    """What is being deleted is as good as gone, though it still answers: a volume goes with the pods that hold it."""
    mine = storage.of_templates(env)
    claims = [each for each in there.claims.value if each["metadata"]["name"] in mine and is_going(each)]
    subjects = [each.subject for each in standing if each.going]
    subjects += [f"PersistentVolumeClaim {each['metadata']['name']}" for each in claims]
    return [Finding("being deleted", each, Verdict.FAIL, "it is being deleted", hint=STILL_THERE) for each in subjects]


def namespace(env: Environment, there: There) -> list[Finding]:
    """It is made by others; a new one would have neither quota nor rights."""
    found, why = there.namespace.value, there.namespace.why
    if why:
        return [Finding("namespace", env.namespace, Verdict.UNKNOWN, why)]
    if found is None:
        make = "oc new-project" if env.openshift else "kubectl create namespace"
        hint = f"`{make} {env.namespace}`, or mend cluster.namespace"
        return [Finding("namespace", env.namespace, Verdict.FAIL, "there is no such namespace", hint=hint)]
    if (found.get("status") or {}).get("phase") == "Terminating":
        return [Finding("namespace", env.namespace, Verdict.FAIL, "it is being deleted", hint="wait, or take another")]
    return [Finding("namespace", env.namespace, Verdict.OK)]


def level(env: Environment, there: There) -> list[Finding]:
    """The namespace's pod security level against what the pods ask for."""
    labels = ((there.namespace.value or {}).get("metadata") or {}).get("labels") or {}
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
    words = f"its security level is {enforced}, and the pods want {' and '.join(wants)}"
    hint = f"ask its admin for the label {ENFORCED}=privileged, or take --mode tcp"
    return [Finding("security level", env.namespace, Verdict.FAIL, words, hint=hint)]
