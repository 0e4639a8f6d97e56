"""Containers whose image is not pulled, that are not created, or that exited."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.cluster.doctor.model import Facts
from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain.findings import Finding, fail, or_ok, warn
from gpuctl.domain.pod_status import (
    CRASHED,
    IMAGE,
    INITIALIZING,
    ending,
    is_oom,
    killing_signal,
    last_termination,
    statuses,
)

PULLS = (
    (
        ("unauthorized", "denied", "authentication", "no basic auth"),
        "the registry requires a login: set image.pull_secret",
    ),
    (("not found", "manifest unknown", "name unknown"), "check the image's name and tag"),
    (("x509", "certificate"), "the nodes do not trust the registry's certificate: add its certificate authority there"),
    (("toomanyrequests", "rate limit"), "the registry's pull limit is reached: log in, or use a mirror"),
    (("no match for platform", "exec format"), "the image is for another processor architecture"),
    (("no such host", "timeout", "refused", "unreachable"), "the nodes cannot reach the registry"),
)
CREATES = (
    ("secret", "`gpuctl cluster deploy` recreates the environment's Secret"),
    ("configmap", "`gpuctl cluster deploy` recreates the environment's ConfigMaps"),
    ("run as non-root", "the image's default user is root: set security.run_as_user"),
    ("runAsNonRoot", "the image's default user is root: set security.run_as_user"),
    ("memory limit too low", "resources.memory is less than the container needs to start"),
)
LAST = 3  # log lines in a message
OOM = "resources.memory is too small; it includes shared memory (resources.shm)"


def image(facts: Facts) -> list[Finding]:
    """Check that the image can be pulled."""
    findings = []
    for name, status in _waiting(facts):
        reason = str(status["state"]["waiting"].get("reason"))
        if reason in IMAGE:
            why = _why_not_pulled(facts, name) or str(status["state"]["waiting"].get("message") or "no reason given")
            message = f"the image {status.get('image')} cannot be pulled ({reason}): {' '.join(why.split())[:300]}"
            hint = next((hint for parts, hint in PULLS if any(part in why.lower() for part in parts)), "")
            findings.append(fail("image", f"Pod {name}", message, hint))
    return or_ok("image", facts.env.name, findings)


def container(facts: Facts) -> list[Finding]:
    """Check that the runtime can create and start the container."""
    findings = []
    for name, status in _waiting(facts):
        waiting = status["state"]["waiting"]
        reason, message = str(waiting.get("reason") or ""), " ".join(str(waiting.get("message") or "").split())
        if reason in (*IMAGE, CRASHED, INITIALIZING) or not message:
            continue
        hint = next((hint for part, hint in CREATES if part in message), "")
        findings.append(
            fail("container", f"Pod {name}", f"{status['name']} does not start ({reason}): {message}", hint)
        )
    return or_ok("container", facts.env.name, findings)


def prepare(facts: Facts) -> list[Finding]:
    """Check that the init container succeeds."""
    findings = []
    for name, pod in facts.pods.items():
        for status in (pod.get("status") or {}).get("initContainerStatuses") or []:
            termination = last_termination(status)
            if termination and termination.get("exitCode") and not status.get("ready"):
                findings.append(_crashed("prepare", facts, name, status, termination))
    return or_ok("prepare", facts.env.name, findings)


def crash(facts: Facts) -> list[Finding]:
    """Check that the container stays up; report how it ended before a restart."""
    findings = []
    for name, pod in facts.pods.items():
        for status in statuses(pod):
            termination = last_termination(status)
            if status["name"] != CONTAINER or not termination:
                continue
            if "running" in (status.get("state") or {}) and status.get("ready"):
                summary, hint = _describe(termination, facts.logs[name].before if name in facts.logs else ())
                times = status.get("restartCount", 0)
                when = f", at {termination['finishedAt']}" if termination.get("finishedAt") else ""
                message = f"it runs; before, it {summary} ({times} restarts{when})"
                findings.append(warn("crash", f"Pod {name}", message, hint))
            else:
                findings.append(_crashed("crash", facts, name, status, termination))
    return or_ok("crash", facts.env.name, findings)


def terminated(facts: Facts) -> list[Finding]:
    """Find pods that were evicted, rejected or deleted."""
    findings = []
    for name, pod in facts.pods.items():
        status = pod.get("status") or {}
        if status.get("reason"):  # Evicted, NodeLost, UnexpectedAdmissionError, NodeAffinity, OutOfcpu …
            message = f"it was terminated ({status['reason']}): {status.get('message') or 'no reason given'}"
            hint = f"`kubectl delete pod {name} -n {facts.env.namespace}` recreates it"
            findings.append(fail("terminated", f"Pod {name}", message, hint))
        elif "deletionTimestamp" in pod["metadata"]:
            since = pod["metadata"]["deletionTimestamp"]
            message = f"it is being deleted since {since}"
            findings.append(warn("terminated", f"Pod {name}", message, "if that is long ago, its node does not answer"))
    return or_ok("terminated", facts.env.name, findings)


def _waiting(facts: Facts) -> Iterator[tuple[str, Object]]:
    """Yield (pod, status) for each waiting container."""
    for name, pod in facts.pods.items():
        for status in [*((pod.get("status") or {}).get("initContainerStatuses") or []), *statuses(pod)]:
            if "waiting" in (status.get("state") or {}):
                yield name, status


def _why_not_pulled(facts: Facts, name: str) -> str:
    """Return the message of the last failed pull: the status may only mention the back-off."""
    messages = [
        str(event.get("message") or "")
        for event in facts.events_of(facts.pods[name])
        if event.get("reason") == "Failed"
    ]
    return next((text for text in reversed(messages) if text.startswith("Failed to pull image")), "")


def _crashed(check: str, facts: Facts, name: str, status: Object, termination: Object) -> Finding:
    log = facts.logs.get(name)
    lines = (log.before or log.lines) if log else ()
    summary, hint = _describe(termination, lines)
    return fail(check, f"Pod {name}", f"{status['name']} {summary} ({status.get('restartCount', 0)} restarts)", hint)


def _describe(termination: Object, lines: object) -> tuple[str, str]:
    """Return a description with the last log lines, and a hint."""
    log_lines = list(lines) if isinstance(lines, list | tuple) else []
    last = [line.strip() for line in log_lines if line.strip()][-LAST:] or str(
        termination.get("message") or ""
    ).splitlines()[-LAST:]
    after = f"; its log ends: {' / '.join(last)}"[:500] if last else ""
    hint = "" if killing_signal(termination) else "`kubectl logs --previous` shows its whole log"
    return f"{ending(termination)}{after}", OOM if is_oom(termination) else hint
