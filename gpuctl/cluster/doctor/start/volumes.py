"""Volumes and networks that a pod needs before its containers are created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import Object
from gpuctl.domain.findings import Finding, fail, or_ok, unknown
from gpuctl.domain.pod_status import is_ready, runs

# Until a pod has a node: then it is the pod that waits, not the volume.
PATIENT = "WaitForFirstConsumer"  # the reason of the event, and the mode of the class
MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
HINTS = (
    ("Multi-Attach", "a node that is gone still holds it: it is freed when that node is deleted, or after six minutes"),
    ("not found", "`gpuctl cluster deploy` makes what is missing"),
    ("timed out", "the storage's driver does not answer: look at its pods, `kubectl get pods -A | grep csi`"),
)
# What the kubelet says of volumes that have not come, whatever kept them (pkg/kubelet/volumemanager).
CONSEQUENCES = ("Unable to attach or mount volumes", "timed out waiting for the condition", "context deadline exceeded")
PAST = ("Pulling", "Pulled", "Created", "Started")  # what comes after volumes and networks are there
NETWORKS = ("FailedCreatePodSandBox", "NetworkNotReady", "FailedCreatePodContainer")


def volumes(facts: Facts) -> list[Finding]:
    """Each claim has its volume, and each volume is mounted."""
    check = "volumes"
    if facts.there.claims.why:
        message = f"claims cannot be looked at: {facts.there.claims.why}"
        return [] if all(map(is_ready, facts.pods.values())) else [unknown(check, facts.env.namespace, message)]
    claims = {claim["metadata"]["name"]: claim for claim in facts.there.claims.value}
    needed = dict.fromkeys(name for pod in facts.pods.values() for name in _claims(pod))
    findings = []
    for name in needed:
        why, hint = _unbound(facts, claims.get(name))
        findings += [fail(check, f"PersistentVolumeClaim {name}", why, hint)] if why else []
    return or_ok(check, facts.env.name, [*findings, *_events(facts, check, MOUNTS, "a volume cannot be mounted")])


def network(facts: Facts) -> list[Finding]:
    """The pod's own network is made; attachments are the usual reason where it is not."""
    findings = _events(facts, "network", NETWORKS, "its network cannot be made")
    return or_ok("network", facts.env.name, findings)


def _claims(pod: Object) -> Iterable[str]:
    for volume in pod["spec"].get("volumes") or []:
        if "persistentVolumeClaim" in volume:
            yield str(volume["persistentVolumeClaim"]["claimName"])


def _unbound(facts: Facts, claim: Object | None) -> tuple[str, str]:
    """Why a claim has no volume, and what to try; nothing where it has one, or waits for its pod."""
    if claim is None:
        return "there is no such claim", "`gpuctl cluster deploy` makes it"
    phase = (claim.get("status") or {}).get("phase")
    if phase == "Lost":
        return "its volume is lost", "what was on it is gone; delete the claim, then deploy again"
    return ("", "") if phase == "Bound" else _why_unbound(facts, claim)


def _why_unbound(facts: Facts, claim: Object) -> tuple[str, str]:
    events = facts.of(claim)
    last = next((event for event in reversed(events) if event.get("type") == "Warning"), events[-1] if events else {})
    if last.get("reason") == PATIENT:
        return "", ""
    class_name = claim["spec"].get("storageClassName")
    classes = {event["metadata"]["name"]: event for event in facts.there.classes.value}
    if class_name and not facts.there.classes.why and class_name not in classes:
        return f"there is no storage class {class_name}", f"there are {', '.join(sorted(classes)) or 'none at all'}"
    if not last and (classes.get(class_name) or {}).get("volumeBindingMode") == PATIENT:
        return "", ""  # events are kept for an hour, and not everybody may read them
    reason = f" ({last['reason']}): {_text(last)}" if last else f"; {facts.events_why or 'no event reason why'}"
    return f"it waits for a volume{reason}", "does the storage's provisioner run?"


def _events(facts: Facts, check: str, reasons: tuple[str, ...], message: str) -> list[Finding]:
    """The cause for each pod that does not run yet and has not got further since."""
    findings = []
    for name, pod in facts.pods.items():
        if is_ready(pod) or runs(pod):
            continue
        events = [event for event in facts.of(pod) if event.get("reason") in (*reasons, *PAST)]
        if events and events[-1]["reason"] in reasons:
            text = _text(_first_cause(events))
            hint = next((hint for part, hint in HINTS if part in text), "")
            findings.append(fail(check, f"Pod {name}", f"{message}: {text}", hint))
    return findings


def _first_cause(events: Sequence[Object]) -> Object:
    """The first event since the pod last got further that names a cause: the kubelet's time-outs follow from it."""
    last_progress = max((number for number, event in enumerate(events) if event["reason"] in PAST), default=-1)
    failures = events[last_progress + 1 :]
    causes = [event for event in failures if not any(text in _text(event) for text in CONSEQUENCES)]
    return min(
        causes or failures, key=lambda event: str(event.get("firstTimestamp") or event.get("lastTimestamp") or "")
    )


def _text(event: Object) -> str:
    return " ".join(str(event.get("message") or "no reason given").split())[:400]
