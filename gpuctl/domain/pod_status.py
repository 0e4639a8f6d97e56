"""Pod status, from the Kubernetes API: ready, running, why it is pending or failed."""

from __future__ import annotations

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
