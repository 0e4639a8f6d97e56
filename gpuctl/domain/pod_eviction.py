"""Pods of a node that is drained: which stay, which are evicted, and which would be lost. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Pod = Mapping[str, Any]
MIRROR = "kubernetes.io/config.mirror"  # annotation of the API's copy of a static pod
OVER = ("Succeeded", "Failed")


def name(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def stays(pod: Pod) -> bool:
    """True for pods that a drain leaves: of DaemonSets, static ones, and those whose containers are over."""
    meta = pod["metadata"]
    owner = _controller(pod)
    is_daemon = owner is not None and owner.get("kind") == "DaemonSet"
    is_mirror = MIRROR in (meta.get("annotations") or {})
    return is_daemon or is_mirror or (pod.get("status") or {}).get("phase") in OVER


def is_leaving(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def loss(pod: Pod, *, bare_pods: bool, emptydir_data: bool) -> str:
    """Pod or data that an eviction would lose without consent; "" if nothing.

    A volume in memory is scratch space of its program.
    `bare_pods`: consent for pods without a controller; `emptydir_data`: for data in emptyDir volumes.
    """
    if not bare_pods and _controller(pod) is None:
        return f"pod {name(pod)} has no controller, and would not come back: --bare-pods evicts it"
    volumes = [row for row in pod["spec"].get("volumes") or () if row.get("emptyDir") is not None]
    on_disk = [row["name"] for row in volumes if row["emptyDir"].get("medium") != "Memory"]
    if on_disk and not emptydir_data:
        return f"pod {name(pod)} would lose the emptyDir volume {on_disk[0]}: --delete-emptydir-data evicts it"
    return ""


def owner(pod: Pod) -> str:
    """Uid of the pod's controller; that of the pod if it has none."""
    return str((_controller(pod) or pod["metadata"])["uid"])


def _controller(pod: Pod) -> Mapping[str, Any] | None:
    return next((row for row in pod["metadata"].get("ownerReferences") or () if row.get("controller")), None)
