"""What the status of a pod says, as the API of Kubernetes gives it."""

from __future__ import annotations

from typing import Any

Pod = dict[str, Any]
IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
# Waiting mends none of these.
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")


def conditions(pod: Pod) -> list[dict[str, Any]]:
    return list((pod.get("status") or {}).get("conditions") or [])


def statuses(pod: Pod) -> list[dict[str, Any]]:
    """Of its containers, without those that only prepare it."""
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def runs(pod: Pod, container: str = "") -> bool:
    """Whether this container of it runs, or any where none is named."""
    return any("running" in (each.get("state") or {}) for each in statuses(pod) if container in ("", each["name"]))


def is_ready(pod: Pod) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions(pod))


def why_not_placed(pod: Pod) -> str:
    """The scheduler's own words; "" where it has a node, or the scheduler has not looked at it."""
    for each in conditions(pod):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each.get("message") or each.get("reason") or "no reason given")
    return ""
