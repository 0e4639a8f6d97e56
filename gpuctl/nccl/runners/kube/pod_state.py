"""Describe why a pod does not start, or how it ended."""

from __future__ import annotations

from typing import Any

from gpuctl.domain.pod_status import HOPELESS, IMAGE, statuses, why_pending

Object = dict[str, Any]


def address(pod: Object) -> str:
    """IP address of a ready pod."""
    return str(pod["status"]["podIP"])


def has_begun(pod: Object) -> bool:
    """True if its container runs or has run."""
    return any("running" in state or "terminated" in state for state in _states(pod)) or is_finished(pod)


def is_finished(pod: Object) -> bool:
    """True if its containers have terminated."""
    states = _states(pod)
    return _phase(pod) in ("Succeeded", "Failed") or (bool(states) and all("terminated" in state for state in states))


def exit_code(pod: Object) -> int | None:
    """Exit code of its container; None if unknown (lost node, evicted before it began)."""
    codes = [state["terminated"].get("exitCode") for state in _states(pod) if "terminated" in state]
    return codes[0] if codes else None


def why_waiting(pod: Object) -> str:
    """Reason why it does not start; empty if none is known."""
    if not_placed := why_pending(pod):
        return f"it cannot be placed: {not_placed}"
    for status in statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if reason in IMAGE:
            return f"its image {status.get('image')} cannot be pulled ({reason}): {message or 'no reason given'}"
        if message:
            return f"its container does not start ({reason}): {message}"
    return ""


def is_hopeless(pod: Object) -> bool:
    waits = [(status.get("state") or {}).get("waiting") or {} for status in statuses(pod)]
    return any(wait.get("reason") in HOPELESS for wait in waits)


def why_gone(pod: Object | None) -> str:
    """Reason why it was ended from outside; empty if it ended by itself or still runs."""
    if pod is None:
        return "its pod was deleted by somebody else"
    status = pod.get("status") or {}
    reasons = {str(state["terminated"].get("reason") or "") for state in _states(pod) if "terminated" in state}
    if "OOMKilled" in reasons:
        return "its pod was out of memory (OOMKilled)"
    if status.get("reason"):  # Evicted, NodeLost, DeadlineExceeded, Preempting, UnexpectedAdmissionError
        return f"its pod was ended ({status['reason']}): {status.get('message') or 'no reason given'}"
    if "deletionTimestamp" in pod["metadata"]:
        return "its pod was deleted by somebody else, or its node is being drained"
    return ""


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _statuses(pod: Object) -> list[Object]:
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def _states(pod: Object) -> list[Object]:
    return [{key: value for key, value in (status.get("state") or {}).items() if value} for status in statuses(pod)]
