"""What becomes of a pod's containers: not pulled, not made, or ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain.findings import Finding, fail, or_ok, warn
from gpuctl.domain.pod_status import IMAGE, statuses

PULLS = (
    (("unauthorized", "denied", "authentication", "no basic auth"), "it takes a login: image.pull_secret names it"),
    (("not found", "manifest unknown", "name unknown"), "is the name right, and the tag there?"),
    (("x509", "certificate"), "the nodes do not trust the registry's certificate: its authority has to be added there"),
    (("toomanyrequests", "rate limit"), "the registry allows no more pulls for now: log in, or use a mirror"),
    (("no match for platform", "exec format"), "the image is for another kind of processor"),
    (("no such host", "timeout", "refused", "unreachable"), "the nodes do not reach the registry"),
)
CREATES = (
    ("secret", "`gpuctl cluster deploy` makes the environment's Secret anew"),
    ("configmap", "`gpuctl cluster deploy` makes the environment's ConfigMaps anew"),
    ("run as non-root", "the image's own user is root: set security.run_as_user"),
    ("runAsNonRoot", "the image's own user is root: set security.run_as_user"),
    ("memory limit too low", "resources.memory is less than the container takes to start"),
)
LAST = 3  # lines of a log that are told
OOM = "resources.memory is too little; shared memory (resources.shm) counts in it"


def image(facts: Facts) -> list[Finding]:
    """It can be pulled."""
    found = []
    for name, status in _waiting(facts):
        reason = str(status["state"]["waiting"].get("reason"))
        if reason in IMAGE:
            why = _why_not_pulled(facts, name) or str(status["state"]["waiting"].get("message") or "no reason given")
            words = f"the image {status.get('image')} cannot be pulled ({reason}): {' '.join(why.split())[:300]}"
            hint = next((hint for parts, hint in PULLS if any(part in why.lower() for part in parts)), "")
            found.append(fail("image", f"Pod {name}", words, hint))
    return or_ok("image", facts.env.name, found)


def container(facts: Facts) -> list[Finding]:
    """The runtime can make and start it."""
    found = []
    for name, status in _waiting(facts):
        waiting = status["state"]["waiting"]
        reason, message = str(waiting.get("reason") or ""), " ".join(str(waiting.get("message") or "").split())
        if reason in (*IMAGE, "CrashLoopBackOff", "PodInitializing") or not message:
            continue
        hint = next((hint for part, hint in CREATES if part in message), "")
        found.append(fail("container", f"Pod {name}", f"{status['name']} does not start ({reason}): {message}", hint))
    return or_ok("container", facts.env.name, found)


def prepare(facts: Facts) -> list[Finding]:
    """The container that runs first ends well."""
    found = []
    for name, pod in facts.pods.items():
        for status in (pod.get("status") or {}).get("initContainerStatuses") or []:
            ended = _ended(status)
            if ended and ended.get("exitCode") and not status.get("ready"):
                found.append(_crashed("prepare", facts, name, status, ended))
    return or_ok("prepare", facts.env.name, found)


def crash(facts: Facts) -> list[Finding]:
    """The container stays up; where it ran again and again, how it ended before."""
    found = []
    for name, pod in facts.pods.items():
        for status in statuses(pod):
            ended = _ended(status)
            if status["name"] != CONTAINER or not ended:
                continue
            if "running" in (status.get("state") or {}) and status.get("ready"):
                words, hint = _how(ended, facts.logs[name].before if name in facts.logs else ())
                times = status.get("restartCount", 0)
                when = f", at {ended['finishedAt']}" if ended.get("finishedAt") else ""
                told = f"it runs; before, it {words} ({times} restarts{when})"
                found.append(warn("crash", f"Pod {name}", told, hint))
            else:
                found.append(_crashed("crash", facts, name, status, ended))
    return or_ok("crash", facts.env.name, found)


def ended(facts: Facts) -> list[Finding]:
    """Pods that were ended from outside."""
    found = []
    for name, pod in facts.pods.items():
        status = pod.get("status") or {}
        if status.get("reason"):  # Evicted, NodeLost, UnexpectedAdmissionError, NodeAffinity, OutOfcpu …
            words = f"it was ended ({status['reason']}): {status.get('message') or 'no reason given'}"
            hint = f"`kubectl delete pod {name} -n {facts.env.namespace}` has it made anew"
            found.append(fail("ended", f"Pod {name}", words, hint))
        elif "deletionTimestamp" in pod["metadata"]:
            since = pod["metadata"]["deletionTimestamp"]
            words = f"it is to be gone since {since}"
            found.append(warn("ended", f"Pod {name}", words, "where that is long ago, its node does not answer"))
    return or_ok("ended", facts.env.name, found)


def _waiting(facts: Facts) -> Iterator[tuple[str, Object]]:
    """(pod, status of a container of it that waits)"""
    for name, pod in facts.pods.items():
        for status in [*((pod.get("status") or {}).get("initContainerStatuses") or []), *statuses(pod)]:
            if "waiting" in (status.get("state") or {}):
                yield name, status


def _why_not_pulled(facts: Facts, name: str) -> str:
    """The event of the pull itself: the status may only say that the node waits before it tries again."""
    said = [str(each.get("message") or "") for each in facts.of(facts.pods[name]) if each.get("reason") == "Failed"]
    return next((text for text in reversed(said) if text.startswith("Failed to pull image")), "")


def _ended(status: Object) -> Object | None:
    """How it ended last; None where it never did, or ended well to be followed by others."""
    state, before = status.get("state") or {}, status.get("lastState") or {}
    found: Object | None = state.get("terminated") or before.get("terminated")
    return found


def _crashed(check: str, facts: Facts, name: str, status: Object, ended: Object) -> Finding:
    log = facts.logs.get(name)
    lines = (log.before or log.lines) if log else ()
    words, hint = _how(ended, lines)
    return fail(check, f"Pod {name}", f"{status['name']} {words} ({status.get('restartCount', 0)} restarts)", hint)


def _how(ended: Object, lines: object) -> tuple[str, str]:
    """In words with the last of its log, and what to try."""
    code = int(ended.get("exitCode") or 0)
    told = list(lines) if isinstance(lines, list | tuple) else []
    last = [line.strip() for line in told if line.strip()][-LAST:] or str(ended.get("message") or "").splitlines()[
        -LAST:
    ]
    after = f"; its log ends: {' / '.join(last)}"[:500] if last else ""
    if ended.get("reason") == "OOMKilled":
        return f"was out of memory (OOMKilled){after}", OOM
    if number := int(ended.get("signal") or 0) or (code - 128 if 128 < code <= 128 + signal.NSIG else 0):
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return f"was ended by signal {number} ({name}){after}", ""
    return f"ended with exit code {code}{after}", "`kubectl logs --previous` has all of its log"
