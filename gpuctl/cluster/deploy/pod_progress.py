"""How far a pod is, and why it is no further, in words; a plain function of what the cluster says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.cluster.environment import Object
from gpuctl.domain.pod_status import HOPELESS, IMAGE, is_ready, runs, statuses, why_not_placed

# What the scheduler says of so many nodes, and what it means.
PLACING = (
    (r"Insufficient (\S+)", r"too little \1 free"),
    (r"node\(s\) didn't match (?:Pod's )?(?:node affinity|node selector|node affinity/selector)", "not those named"),
    (r"node\(s\) didn't match pod (?:affinity/)?anti-affinity(?: rules)?", "a pod of ours already"),
    (r"node\(s\) had (?:untolerated )?taint \{([^}]*)\}.*", r"tainted \1"),
    (r"node\(s\) were unschedulable", "cordoned"),
    (r"node\(s\) had volume node affinity conflict", "out of reach of its volume"),
    (r"(?:pod has|node\(s\) had) unbound immediate PersistentVolumeClaims", "its volumes are not there yet"),
)


@dataclass(frozen=True)
class State:
    """`words`: how far it is. `trouble`: what keeps it from being ready, as far as the cluster says."""

    words: str
    ready: bool = False
    trouble: str = ""
    hopeless: bool = False


def state(pod: Object, events: Sequence[Object] = (), claims: Sequence[Object] = ()) -> State:
    """`events` are those of the pod, oldest first; `claims` the volumes' claims of the namespace, with theirs."""
    if "deletionTimestamp" in pod["metadata"]:
        return State("is ending")
    if is_ready(pod):
        return State(f"is ready on {pod['spec'].get('nodeName', '?')}", ready=True)
    if not pod["spec"].get("nodeName"):
        trouble = _not_placed(pod, claims)
        return State("waits for a node", trouble=trouble)
    where = f"on {pod['spec']['nodeName']}"
    for status in _all_statuses(pod):
        trouble = _of_container(status)
        if trouble:
            waiting = (status.get("state") or {}).get("waiting") or {}
            return State(f"does not start {where}", trouble=trouble, hopeless=waiting.get("reason") in HOPELESS)
    if runs(pod):
        return State(f"runs {where}, and is not ready yet")
    pulling = ", pulling its image" if events and events[-1].get("reason") == "Pulling" else ""
    return State(
        f"starts {where}{pulling}", trouble=warning([e for e in events if e.get("reason") != "FailedScheduling"])
    )


def warning(events: Sequence[Object]) -> str:
    """The last thing that went wrong, as its event says."""
    for event in reversed(events):
        if event.get("type") == "Warning":
            return f"{event.get('reason')}: {' '.join(str(event.get('message')).split())}"
    return ""


def _not_placed(pod: Object, claims: Sequence[Object]) -> str:
    message = why_not_placed(pod)
    waiting = _volumes(pod, claims) if "PersistentVolumeClaim" in message else ""
    return f"no node takes it: {placing(message)}" + (f" ({waiting})" if waiting else "") if message else ""


def placing(message: str) -> str:
    """The scheduler's message in words; what is not known of it stays as it is."""
    total, _, parts = message.partition(": ")
    count = re.match(r"0/(\d+) nodes are available", total)
    if not count:
        return message
    # Newer schedulers add what preempting others would bring.
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
    """Which of its volumes are not there yet."""
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
    reasons = [f"{name} waits for a volume" for name in sorted(waiting)] + [f"{name} is not there" for name in lost]
    return ", ".join(reasons)


def _of_container(status: Object) -> str:
    name, now = status.get("name"), status.get("state") or {}
    waiting, terminated = now.get("waiting") or {}, now.get("terminated") or {}
    reason, message = str(waiting.get("reason") or ""), " ".join(str(waiting.get("message") or "").split())
    last_end = terminated or (status.get("lastState") or {}).get("terminated") or {}
    if reason in IMAGE:
        return f"the image {status.get('image')} cannot be pulled ({reason}): {message or 'no reason given'}"
    if reason == "CrashLoopBackOff" or (terminated and terminated.get("exitCode") != 0):
        return f"{name} ended {_how(last_end)}; {status.get('restartCount', 0)} restarts"
    return f"{name} does not start ({reason}): {message}" if message else ""


def _how(terminated: Object) -> str:
    last = " ".join(str(terminated.get("message") or "").split())[-300:]
    reason = f" ({terminated['reason']})" if terminated.get("reason") not in (None, "Error", "Completed") else ""
    return f"with exit code {terminated.get('exitCode', '?')}{reason}" + (f": {last}" if last else "")


def _all_statuses(pod: Object) -> Iterable[Object]:
    return [*((pod.get("status") or {}).get("initContainerStatuses") or []), *statuses(pod)]
