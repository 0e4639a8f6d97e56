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
    for each in reversed(events):
        if each.get("type") == "Warning":
            return f"{each.get('reason')}: {' '.join(str(each.get('message')).split())}"
    return ""


def _not_placed(pod: Object, claims: Sequence[Object]) -> str:
    said = why_not_placed(pod)
    waiting = _volumes(pod, claims) if "PersistentVolumeClaim" in said else ""
    return f"no node takes it: {placing(said)}" + (f" ({waiting})" if waiting else "") if said else ""


def placing(said: str) -> str:
    """The scheduler's message in words; what is not known of it stays as it is."""
    total, _, parts = said.partition(": ")
    count = re.match(r"0/(\d+) nodes are available", total)
    if not count:
        return said
    # Newer schedulers add what preempting others would bring.
    listed = parts.partition(" preemption:")[0].strip().rstrip(".")
    told = [_in_words(each.strip()) for each in re.split(r", (?=\d+ |pod has )", listed)]
    return f"of {count[1]} nodes, {'; '.join(told)}"


def _in_words(part: str) -> str:
    number, _, rest = part.partition(" ")
    counted, what = (f"{number}: ", rest) if number.isdigit() else ("", part)
    for pattern, words in PLACING:
        if found := re.fullmatch(pattern, what):
            return counted + found.expand(words)
    return counted + what


def _volumes(pod: Object, claims: Sequence[Object]) -> str:
    """Which of its volumes are not there yet."""
    wanted = {
        each["persistentVolumeClaim"]["claimName"]
        for each in pod["spec"].get("volumes") or []
        if "persistentVolumeClaim" in each
    }
    waiting = [
        each["metadata"]["name"]
        for each in claims
        if each["metadata"]["name"] in wanted and (each.get("status") or {}).get("phase") != "Bound"
    ]
    lost = sorted(wanted - {each["metadata"]["name"] for each in claims})
    told = [f"{name} waits for a volume" for name in sorted(waiting)] + [f"{name} is not there" for name in lost]
    return ", ".join(told)


def _of_container(status: Object) -> str:
    name, now = status.get("name"), status.get("state") or {}
    waiting, ended = now.get("waiting") or {}, now.get("terminated") or {}
    reason, message = str(waiting.get("reason") or ""), " ".join(str(waiting.get("message") or "").split())
    before = ended or (status.get("lastState") or {}).get("terminated") or {}
    if reason in IMAGE:
        return f"the image {status.get('image')} cannot be pulled ({reason}): {message or 'no reason given'}"
    if reason == "CrashLoopBackOff" or (ended and ended.get("exitCode") != 0):
        return f"{name} ended {_how(before)}; {status.get('restartCount', 0)} restarts"
    return f"{name} does not start ({reason}): {message}" if message else ""


def _how(ended: Object) -> str:
    last = " ".join(str(ended.get("message") or "").split())[-300:]
    reason = f" ({ended['reason']})" if ended.get("reason") not in (None, "Error", "Completed") else ""
    return f"with exit code {ended.get('exitCode', '?')}{reason}" + (f": {last}" if last else "")


def _all_statuses(pod: Object) -> Iterable[Object]:
    return [*((pod.get("status") or {}).get("initContainerStatuses") or []), *statuses(pod)]
