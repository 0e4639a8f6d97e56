"""Volumes and networks that a pod needs before its containers are created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import Object
from gpuctl.domain.findings import Finding, fail, or_ok, unknown
from gpuctl.domain.pod_status import is_ready, runs

# The volume waits until its pod has a node, which is normal.
WAITS_FOR_POD = "WaitForFirstConsumer"  # the reason of the event, and the mode of the class
MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
HINTS = (
    ("Multi-Attach", "a lost node still holds it: it is released when that node is deleted, or after six minutes"),
    ("not found", "`gpuctl cluster deploy` creates what is missing"),
    ("timed out", "the storage driver does not answer: check its pods, `kubectl get pods -A | grep csi`"),
)
# What follows from another failure: time-outs of the kubelet (pkg/kubelet/volumemanager), and what storage drivers say
# of a second try while the first one runs.
CONSEQUENCES = (
    *("Unable to attach or mount volumes", "timed out waiting for the condition", "context deadline exceeded"),
    "peration with the given Volume",
)
PAST = ("Pulling", "Pulled", "Created", "Started")  # events after volumes and networks are ready
NETWORKS = ("FailedCreatePodSandBox", "NetworkNotReady", "FailedCreatePodContainer")


def volumes(facts: Facts) -> list[Finding]:
    """Check that each claim has a volume, and each volume is mounted."""
    check = "volumes"
    if facts.snapshot.claims.why:
        message = f"claims cannot be read: {facts.snapshot.claims.why}"
        return [] if all(map(is_ready, facts.pods.values())) else [unknown(check, facts.env.namespace, message)]
    claims = {claim["metadata"]["name"]: claim for claim in facts.snapshot.claims.value}
    needed = dict.fromkeys(name for pod in facts.pods.values() for name in _claims(pod))
    findings = []
    for name in needed:
        why, hint = _unbound(facts, claims.get(name))
        findings += [fail(check, f"PersistentVolumeClaim {name}", why, hint)] if why else []
    return or_ok(check, facts.env.name, [*findings, *_events(facts, check, MOUNTS, "a volume cannot be mounted")])


def network(facts: Facts) -> list[Finding]:
    """Check that the pod's network is created; attachments are the usual reason if it is not."""
    findings = _events(facts, "network", NETWORKS, "its network cannot be created")
    return or_ok("network", facts.env.name, findings)


def _claims(pod: Object) -> Iterable[str]:
    for volume in pod["spec"].get("volumes") or []:
        if "persistentVolumeClaim" in volume:
            yield str(volume["persistentVolumeClaim"]["claimName"])


def _unbound(facts: Facts, claim: Object | None) -> tuple[str, str]:
    """Return why a claim has no volume, and a hint; two empty strings if it is bound or waits for its pod."""
    if claim is None:
        return "the claim does not exist", "`gpuctl cluster deploy` creates it"
    phase = (claim.get("status") or {}).get("phase")
    if phase == "Lost":
        return "its volume is lost", "its data is gone; delete the claim, then deploy again"
    return ("", "") if phase == "Bound" else _why_unbound(facts, claim)


def _why_unbound(facts: Facts, claim: Object) -> tuple[str, str]:
    events = facts.events_of(claim)
    warnings = [event for event in events if event.get("type") == "Warning"]
    cause = _first_cause(warnings) if warnings else events[-1] if events else {}
    if cause.get("reason") == WAITS_FOR_POD:
        return "", ""
    class_name = claim["spec"].get("storageClassName")
    classes = {event["metadata"]["name"]: event for event in facts.snapshot.classes.value}
    if class_name and not facts.snapshot.classes.why and class_name not in classes:
        return f"there is no storage class {class_name}", f"there are {', '.join(sorted(classes)) or 'none at all'}"
    if not cause and (classes.get(class_name) or {}).get("volumeBindingMode") == WAITS_FOR_POD:
        return "", ""  # events expire after an hour, and some users may not read them
    reason = f" ({cause['reason']}): {_text(cause)}" if cause else f"; {facts.events_why or 'no event says why'}"
    return f"it waits for a volume{reason}", "check that the storage provisioner runs"


def _events(facts: Facts, check: str, reasons: tuple[str, ...], message: str) -> list[Finding]:
    """Report the cause for each pod that is not running, and made no progress since the event."""
    findings = []
    for name, pod in facts.pods.items():
        if is_ready(pod) or runs(pod):
            continue
        events = [event for event in facts.events_of(pod) if event.get("reason") in (*reasons, *PAST)]
        if events and events[-1]["reason"] in reasons:
            text = _text(_first_cause(events))
            hint = next((hint for part, hint in HINTS if part in text), "")
            findings.append(fail(check, f"Pod {name}", f"{message}: {text}", hint))
    return findings


def _first_cause(events: Sequence[Object]) -> Object:
    """Return the first event since the last progress that names a cause, not one of its consequences."""
    last_progress = max((number for number, event in enumerate(events) if event["reason"] in PAST), default=-1)
    failures = events[last_progress + 1 :]
    causes = [event for event in failures if not any(text in _text(event) for text in CONSEQUENCES)]
    return min(
        causes or failures, key=lambda event: str(event.get("firstTimestamp") or event.get("lastTimestamp") or "")
    )


def _text(event: Object) -> str:
    return " ".join(str(event.get("message") or "no reason given").split())[:400]
