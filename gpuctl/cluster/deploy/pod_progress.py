"""Describe a pod's progress and what keeps it from being ready, as a plain function of its objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.cluster.environment import Object
from gpuctl.domain.pod_status import CRASHED, HOPELESS, IMAGE, is_ready, runs, statuses, why_pending

# Messages of the scheduler, and their meaning.
PLACING = (
    (r"Insufficient (\S+)", r"too little \1 free"),
    (r"node\(s\) didn't match (?:Pod's )?(?:node affinity|node selector|node affinity/selector)", "not those named"),
    (r"node\(s\) didn't match pod (?:affinity/)?anti-affinity(?: rules)?", "a pod of ours already"),
    (r"node\(s\) had (?:untolerated )?taint \{([^}]*)\}.*", r"tainted \1"),
    (r"node\(s\) were unschedulable", "cordoned"),
    (r"node\(s\) had volume node affinity conflict", "out of reach of its volume"),
    (r"(?:pod has|node\(s\) had) unbound immediate PersistentVolumeClaims", "its volumes do not exist yet"),
)


@dataclass(frozen=True)
class PodProgress:
    """`summary`: the phase in words. `trouble`: what keeps the pod from being ready, if the cluster reports it.

    `stuck`: that is an error of a container, such as its image, which Kubernetes tries again.
    """

    summary: str
    ready: bool = False
    trouble: str = ""
    hopeless: bool = False
    stuck: bool = False


def state(pod: Object, events: Sequence[Object] = (), claims: Sequence[Object] = ()) -> PodProgress:
    """Return a pod's progress; `events` are the pod's, oldest first; `claims` are those of the namespace."""
    if "deletionTimestamp" in pod["metadata"]:
        return PodProgress("is ending")
    if is_ready(pod):
        return PodProgress(f"is ready on {pod['spec'].get('nodeName', '?')}", ready=True)
    if not pod["spec"].get("nodeName"):
        trouble = _not_placed(pod, claims)
        return PodProgress("waits for a node", trouble=trouble)
    where = f"on {pod['spec']['nodeName']}"
    for status in _all_statuses(pod):
        trouble = _of_container(status)
        if trouble:
            waiting = (status.get("state") or {}).get("waiting") or {}
            hopeless = waiting.get("reason") in HOPELESS
            return PodProgress(f"does not start {where}", trouble=trouble, hopeless=hopeless, stuck=True)
    if runs(pod):
        return PodProgress(f"runs {where}, and is not ready yet")
    pulling = ", pulling its image" if events and events[-1].get("reason") == "Pulling" else ""
    return PodProgress(
        f"starts {where}{pulling}", trouble=warning([e for e in events if e.get("reason") != "FailedScheduling"])
    )


def warning(events: Sequence[Object]) -> str:
    """Return the message of the last warning event."""
    for event in reversed(events):
        if event.get("type") == "Warning":
            return f"{event.get('reason')}: {' '.join(str(event.get('message')).split())}"
    return ""


def _not_placed(pod: Object, claims: Sequence[Object]) -> str:
    message = why_pending(pod)
    waiting = _volumes(pod, claims) if "PersistentVolumeClaim" in message else ""
    return f"no node takes it: {placing(message)}" + (f" ({waiting})" if waiting else "") if message else ""


def placing(message: str) -> str:
    """Simplify the scheduler's message; unknown parts stay as they are."""
    total, _, parts = message.partition(": ")
    count = re.match(r"0/(\d+) nodes are available", total)
    if not count:
        return message
    # Newer schedulers append the result of preemption.
    listed = parts.partition(" preemption:")[0].strip().rstrip(".")
    reasons = [_in_words(part.strip()) for part in re.split(r", (?=\d+ |pod has )", listed)]
    return f"of {count[1]} nodes, {'; '.join(reasons)}"


def _in_words(part: str) -> str:
    number, _, rest = part.partition(" ")
    counted, what = (f"{number}: ", rest) if number.isdigit() else ("", part)
    for pattern, template in PLACING:
        if match := re.fullmatch(pattern, what):
            return counted + match.expand(template)
    return counted + what


def _volumes(pod: Object, claims: Sequence[Object]) -> str:
    """Name the volumes that are not bound yet."""
    claimed = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes") or []
        if "persistentVolumeClaim" in volume
    }
    waiting = [
        claim["metadata"]["name"]
        for claim in claims
        if claim["metadata"]["name"] in claimed and (claim.get("status") or {}).get("phase") != "Bound"
    ]
    lost = sorted(claimed - {claim["metadata"]["name"] for claim in claims})
    reasons = [f"{name} waits for a volume" for name in sorted(waiting)] + [f"{name} does not exist" for name in lost]
    return ", ".join(reasons)


def _of_container(status: Object) -> str:
    name, now = status.get("name"), status.get("state") or {}
    waiting, terminated = now.get("waiting") or {}, now.get("terminated") or {}
    reason, message = str(waiting.get("reason") or ""), " ".join(str(waiting.get("message") or "").split())
    last_end = terminated or (status.get("lastState") or {}).get("terminated") or {}
    if reason in IMAGE:
        return f"the image {status.get('image')} cannot be pulled ({reason}): {message or 'no reason given'}"
    if reason == CRASHED or (terminated and terminated.get("exitCode") != 0):
        return f"{name} ended {_how(last_end)}; {status.get('restartCount', 0)} restarts"
    return f"{name} does not start ({reason}): {message}" if message else ""


def _how(terminated: Object) -> str:
    last = " ".join(str(terminated.get("message") or "").split())[-300:]
    reason = f" ({terminated['reason']})" if terminated.get("reason") not in (None, "Error", "Completed") else ""
    return f"with exit code {terminated.get('exitCode', '?')}{reason}" + (f": {last}" if last else "")


def _all_statuses(pod: Object) -> Iterable[Object]:
    return [*((pod.get("status") or {}).get("initContainerStatuses") or []), *statuses(pod)]
