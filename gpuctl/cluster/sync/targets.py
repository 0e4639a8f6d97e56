"""Sync targets: pods, and which of them share the synced folder, from the pods' own definitions."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain.pod_status import runs


@dataclass(frozen=True)
class Target:
    """A pod to sync to. `place`: equal for pods that see the same folder; `wrong`: why nothing can run in it."""

    pod: str
    container: str
    place: tuple[str, ...]
    wrong: str = ""


def target(pod: Object, folder: str, container: str = "") -> Target:
    """Build the target of a pod, where `folder` is a path in its container."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    names = [candidate["name"] for candidate in spec["containers"]]
    chosen = container or (CONTAINER if CONTAINER in names else names[0])
    if chosen not in names:
        return Target(name, chosen, ("pod", name), f"it has no container {chosen}, but {', '.join(names)}")
    container_spec = next(candidate for candidate in spec["containers"] if candidate["name"] == chosen)
    return Target(name, chosen, _place(pod, container_spec, posixpath.normpath(folder)), _not_running(pod, chosen))


def _not_running(pod: Object, container: str) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "it is terminating"
    if runs(pod, container):
        return ""
    return f"it is not running ({(pod.get('status') or {}).get('phase', 'its state is not known')})"


def _place(pod: Object, container: Object, folder: str) -> tuple[str, ...]:
    """Identify the storage of a folder: a claim, a share, a node's folder; or the pod's own."""
    private = ("pod", pod["metadata"]["name"])
    mounts = [mount for mount in container.get("volumeMounts", []) if _inside(folder, mount["mountPath"])]
    if not mounts:
        return private
    mount = max(mounts, key=lambda mount: len(posixpath.normpath(mount["mountPath"])))
    if mount.get("subPathExpr"):
        return private
    volume: Object = next((volume for volume in pod["spec"].get("volumes", []) if volume["name"] == mount["name"]), {})
    rest = posixpath.relpath(folder, posixpath.normpath(mount["mountPath"]))
    below = posixpath.normpath(posixpath.join(mount.get("subPath", ""), rest))
    if claim := volume.get("persistentVolumeClaim"):
        return "claim", claim["claimName"], below
    if share := volume.get("nfs"):
        return "share", share["server"], posixpath.normpath(posixpath.join(share["path"], below))
    if path := volume.get("hostPath"):
        return "node", pod["spec"].get("nodeName", ""), posixpath.normpath(posixpath.join(path["path"], below))
    return private


def _inside(folder: str, mount: str) -> bool:
    top = posixpath.normpath(mount)
    return folder == top or folder.startswith(f"{top.rstrip('/')}/")


def groups(targets: Sequence[Target]) -> list[list[Target]]:
    """Group targets that share a folder, in the order of their numbers; the first running one receives it."""
    by_place: dict[tuple[str, ...], list[Target]] = {}
    for sync_target in sorted(targets, key=lambda target: (bool(target.wrong), natural(target.pod))):
        by_place.setdefault(sync_target.place, []).append(sync_target)
    return sorted(by_place.values(), key=lambda group: natural(group[0].pod))


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key: pod-2 before pod-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
