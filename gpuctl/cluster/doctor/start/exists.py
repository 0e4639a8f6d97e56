"""The environment's objects and pods: deployed and created."""

from __future__ import annotations

import json
import re

from gpuctl.cluster.doctor.model import Facts
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, warn
from gpuctl.domain.kube_errors import error_of

DEPLOY = "`gpuctl cluster deploy` creates it"
# Pods need all of these. Other objects may be new in the cluster file, and are only a warning.
NEEDED = ("StatefulSet", "Pod", "Service", "ServiceAccount", "Secret", "ConfigMap", "PersistentVolumeClaim")
# Preflight checks of the namespace, which explain why a StatefulSet's pods are refused.
ABOUT_PODS = ("namespace", "security level", "quota", "limits", "constraints", "account")
REFUSED = re.compile(r"^create Pod (\S+) in StatefulSet \S+ failed error: (.*)", re.DOTALL)
CAPABILITY = re.compile(r"capabilit|IPC_LOCK|SYS_RESOURCE")
NO_IPC_LOCK = (
    "security.ipc_lock requests it: allow it by a security context constraint or security level, or use --mode tcp"
)


def deployed(facts: Facts) -> list[Finding]:
    """Check that all objects of the environment exist."""
    check, name = "deployed", facts.env.name
    if facts.mode is None and facts.owner is None and not facts.pods:
        return [fail(check, name, f"it is not deployed in {facts.env.namespace}", DEPLOY)]
    findings = [
        (fail if subject.partition(" ")[0] in NEEDED else warn)(check, subject, "it does not exist", DEPLOY)
        for subject in facts.missing
    ]
    return or_ok(check, name, findings)


def created(facts: Facts) -> list[Finding]:
    """Check that every pod exists, and explain missing ones by the StatefulSet's events."""
    check = "created"
    missing = [name for name in facts.expected_pods if name not in facts.pods]
    if not missing or facts.owner is None:
        return or_ok(check, facts.env.name, [])
    refused = {}
    for event in facts.events_of(facts.owner):
        if match := REFUSED.match(str(event.get("message") or "")):
            refused[match[1]] = match[2]
    findings = [_refused(name, refused[name]) for name in missing if name in refused]
    silent = [name for name in missing if name not in refused]
    why = facts.events_why or "no event says why"
    if silent and not findings:
        hint = f"check `kubectl describe statefulset {facts.env.name} -n {facts.env.namespace}`"
        findings += [unknown(check, f"Pod {name}", f"it is not created; {why}", hint) for name in silent]
    more = [finding for finding in facts.preflight if finding.check in ABOUT_PODS and finding.verdict is Verdict.FAIL]
    return findings + [fail(check, finding.subject, finding.message, finding.hint) for finding in more]


def _refused(name: str, message: str) -> Finding:
    """Explain a refusal by a quota, security rule or webhook."""
    error = error_of(
        "create it", 403 if "forbidden" in message else 422, json.dumps({"message": " ".join(message.split())})
    )
    hint = NO_IPC_LOCK if CAPABILITY.search(message) else error.hint
    return fail("created", f"Pod {name}", f"it cannot be created: {error.wrong}", hint)
