"""Findings about a pod, its containers, its node and its logs, by what the cluster records of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuctl.domain import job_log, node_drain
from gpuctl.domain.findings import Finding, Verdict, fail, unknown, warn
from gpuctl.domain.job_log import JobFailure, JobLog
from gpuctl.domain.pod_status import (
    CRASHED,
    IMAGE,
    INITIALIZING,
    conditions,
    ending,
    is_oom,
    is_ready,
    last_termination,
    statuses,
    why_pending,
)
from gpuctl.kube.logs_ai.model import Log, Object, Records, name_of

# A line of any program that reads like an error, where no known failure of a job is in the log.
READS_LIKE_AN_ERROR = re.compile(
    r"\b(?:panic|fatal|critical|error)\b\s*[:\]=]|\blevel=(?:error|fatal|panic)\b|^[EF]\d{4} \d\d:", re.IGNORECASE
)
CREATING = "ContainerCreating"
MOST_TEXT = 400  # characters of a message of the cluster


def of_status(pod: Object) -> list[Finding]:
    """Judge a pod by its own status."""
    return [*_of_pod(pod), *_of_containers(pod)] or _of_readiness(pod)


def of_records(records: Records) -> list[Finding]:
    """Judge a pod by everything that was read."""
    findings = [*of_status(records.pod), *_of_node(records)]
    has_failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    in_logs = [finding for log in records.logs for finding in _of_log(records.name, log)]
    explained = any(finding.verdict is Verdict.FAIL for finding in in_logs)
    # A log in which nothing is known matters only if a failure has no other explanation.
    matters = has_failed and not explained
    return findings + [finding for finding in in_logs if matters or finding.verdict is not Verdict.UNKNOWN]


def first_failure(log: Log) -> JobFailure | None:
    """Return the first failure of a log: a known one, else the first line that reads like an error."""
    return job_log.read(log.lines).first or _like_an_error(log)


def _of_pod(pod: Object) -> Iterator[Finding]:
    name, status = name_of(pod), pod.get("status") or {}
    if status.get("reason"):  # Evicted, NodeLost, UnexpectedAdmissionError, OutOfcpu …
        message = f"it was terminated ({status['reason']}): {_text(status)}"
        yield fail("terminated", name, message)
    if "deletionTimestamp" in pod["metadata"]:
        yield warn("terminated", name, f"it is being deleted since {pod['metadata']['deletionTimestamp']}")
    if reason := why_pending(dict(pod)):
        yield fail("scheduling", name, f"no node takes it: {_short(reason)}")
    elif status.get("phase") == "Pending" and not (pod.get("spec") or {}).get("nodeName"):
        yield unknown("scheduling", name, "it has no node, and the scheduler gives no reason")


def _of_readiness(pod: Object) -> list[Finding]:
    """Judge a pod that has no other fault."""
    if is_ready(dict(pod)) or (pod.get("status") or {}).get("phase") != "Running":
        return []
    reasons = [one for one in conditions(dict(pod)) if one.get("type") == "Ready"]
    return [warn("ready", name_of(pod), f"it runs and is not ready: {_text(reasons[0] if reasons else {})}")]


def _of_containers(pod: Object) -> Iterator[Finding]:
    status = pod.get("status") or {}
    for state in [*(status.get("initContainerStatuses") or ()), *statuses(dict(pod))]:
        yield from _waiting(name_of(pod), state)
        yield from _terminated(name_of(pod), state)


def _waiting(name: str, status: Object) -> Iterator[Finding]:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    if reason in IMAGE:
        message = f"the image {status.get('image')} of {status['name']} cannot be pulled ({reason}): {_text(waiting)}"
        yield fail("image", name, message)
    elif reason not in ("", CRASHED, INITIALIZING, CREATING):
        yield fail("start", name, f"{status['name']} does not start ({reason}): {_text(waiting)}")


def _terminated(name: str, status: Object) -> Iterator[Finding]:
    end = last_termination(dict(status))
    loops = ((status.get("state") or {}).get("waiting") or {}).get("reason") == CRASHED
    if end is None or not (loops or end.get("exitCode") or is_oom(end)):
        return
    check = "memory" if is_oom(end) else "crash"
    at = f" at {end['finishedAt']}" if end.get("finishedAt") else ""
    restarts = status.get("restartCount", 0)
    message = f"{status['name']} {ending(end)}{at}, restarts: {restarts}"
    if end.get("message"):
        message += f"; it wrote: {_text(end)}"
    if "running" in (status.get("state") or {}):
        yield warn(check, name, f"{message}; it runs again")
    else:
        yield fail(check, name, message)


def _of_node(records: Records) -> Iterator[Finding]:
    if records.node_why:
        yield unknown("node", records.name, f"its node cannot be read: {records.node_why}")
    if records.node is None:
        return
    subject = f"node {records.node['metadata']['name']}"
    for condition in (records.node.get("status") or {}).get("conditions") or ():
        if (condition.get("type") == "Ready") is (condition.get("status") == "True"):
            continue
        if condition.get("status") == "False" and condition.get("type") != "Ready":
            continue
        text = f"{condition.get('type')} is {condition.get('status')} ({condition.get('reason')}): {_text(condition)}"
        yield (fail if condition.get("type") == "Ready" else warn)("node", subject, text)
    if node_drain.is_cordoned(records.node):
        mark = node_drain.mark_of(records.node)
        yield warn("node", subject, f"it was drained by gpuctl: {mark['reason']}" if mark else "it is cordoned")


def _of_log(pod: str, log: Log) -> list[Finding]:
    subject = f"{pod}, log of {log.name}"
    if log.why:
        return [unknown("log", subject, f"it cannot be read: {log.why}")]
    read = job_log.read(log.lines)
    if read.first is not None:
        first, *others = [_in_log(subject, finding) for finding in job_log.judge(read)]
        return [replace(first, message=f"{first.message} ({log.cut_note})") if log.is_cut else first, *others]
    if line := _like_an_error(log):
        return [warn("log", subject, f"no known failure; line {line.line} reads like an error: {line.text}")]
    return [unknown("log", subject, _nothing(read))]


def _nothing(read: JobLog) -> str:
    return f"no known failure in its last {read.lines} lines" if read.lines else "it is empty"


def _in_log(subject: str, finding: Finding) -> Finding:
    """A finding of the job's log as one of this pod; lines are counted from the first that was read."""
    rank = f"{finding.subject}: " if finding.subject else ""
    return replace(finding, check="log", subject=subject, message=f"{rank}{finding.message}", hint="")


def _like_an_error(log: Log) -> JobFailure | None:
    matches = (number for number, line in enumerate(log.lines, 1) if READS_LIKE_AN_ERROR.search(line[:MOST_TEXT]))
    number = next(matches, None)
    return None if number is None else JobFailure(number, "error", _short(log.lines[number - 1]))


def _text(record: Object) -> str:
    return _short(str(record.get("message") or "no reason given"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else f"{line[: MOST_TEXT - 1]}…"


def earliest_end(pod: Object) -> str:
    """Return the time at which the first container of a pod failed; "~", which sorts last, if none did."""
    ends: Sequence[Object | None] = [last_termination(status) for status in statuses(dict(pod))]
    failed = [end for end in ends if end and end.get("exitCode")]
    return min((str(end["finishedAt"]) for end in failed if end.get("finishedAt")), default="~")
