"""Pod status, from the Kubernetes API: ready, running, why it is pending or failed."""

from __future__ import annotations

from signal import NSIG, Signals
from typing import Any

Pod = dict[str, Any]
REVISION = "controller-revision-hash"  # label: the template that a StatefulSet made the pod from
# Reasons of a waiting container: kubelet, pkg/kubelet/{container/sync_result,images/types,kuberuntime}.go.
IMAGE = (
    *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
    *("RegistryUnavailable", "SignatureValidationFailed"),
)
CRASHED = "CrashLoopBackOff"
NOT_CREATED = (
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    *("PreCreateHookError", "PreStartHookError", "PostStartHookError", "ContainerCannotRun"),
)
INITIALIZING = "PodInitializing"  # waits for an init container
# Errors that do not resolve by waiting.
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")


def conditions(pod: Pod) -> list[dict[str, Any]]:
    return list((pod.get("status") or {}).get("conditions") or [])


def statuses(pod: Pod) -> list[dict[str, Any]]:
    """The status of each container, init containers excluded."""
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def runs(pod: Pod, container: str = "") -> bool:
    """True if this container runs, or any container if none is named."""
    return any(
        "running" in (status.get("state") or {}) for status in statuses(pod) if container in ("", status["name"])
    )


def is_ready(pod: Pod) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions(pod))


def why_pending(pod: Pod) -> str:
    """Return the scheduler's message on a pending pod; "" if it has a node or was not considered yet."""
    for condition in conditions(pod):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no reason given")
    return ""


def last_termination(status: dict[str, Any]) -> dict[str, Any] | None:
    """Return a container's last termination, by its status; None if it never ended."""
    state, before = status.get("state") or {}, status.get("lastState") or {}
    termination: dict[str, Any] | None = state.get("terminated") or before.get("terminated")
    return termination


def is_oom(termination: dict[str, Any]) -> bool:
    return termination.get("reason") == "OOMKilled"


def killing_signal(termination: dict[str, Any]) -> int:
    """Return the signal that ended a container: the runtime's, else by an exit code above 128; 0 for none."""
    code = int(termination.get("exitCode") or 0)
    return int(termination.get("signal") or 0) or (code - 128 if 128 < code <= 128 + NSIG else 0)


def ending(termination: dict[str, Any]) -> str:
    """Describe a termination: "ran out of memory (OOMKilled)", "was killed by signal 11 (SIGSEGV)"."""
    if is_oom(termination):
        return "ran out of memory (OOMKilled)"
    if number := killing_signal(termination):
        return f"was killed by signal {number} ({Signals(number).name if number in set(Signals) else number})"
    return f"ended with exit code {int(termination.get('exitCode') or 0)}"
