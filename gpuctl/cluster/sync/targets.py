"""Which pods there are, and which of them share the folder that is synced: read from the pods themselves."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.cluster.environment import CONTAINER, Object
from gpuctl.domain.pod_status import runs


@dataclass(frozen=True)
class Target:
    """A pod to sync to. `place` is the same for pods that see the same folder; `wrong`: why nothing can run in it."""

    pod: str
    container: str
    place: tuple[str, ...]
    wrong: str = ""


def target(pod: Object, folder: str, container: str = "") -> Target:
    """A pod as something to sync to, where `folder` is a path in its container."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    names = [each["name"] for each in spec["containers"]]
    chosen = container or (CONTAINER if CONTAINER in names else names[0])
    if chosen not in names:
        return Target(name, chosen, ("pod", name), f"it has no container {chosen}, but {', '.join(names)}")
    found = next(each for each in spec["containers"] if each["name"] == chosen)
    return Target(name, chosen, _place(pod, found, posixpath.normpath(folder)), _not_running(pod, chosen))


def _not_running(pod: Object, container: str) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "it is ending"
    if runs(pod, container):
        return ""
    return f"it is not running ({(pod.get('status') or {}).get('phase', 'its state is not known')})"


def _place(pod: Object, container: Object, folder: str) -> tuple[str, ...]:
    """What a folder is a part of: a claim, a share, a folder of a node; or else the pod's own."""
    own = ("pod", pod["metadata"]["name"])
    mounts = [each for each in container.get("volumeMounts", []) if _inside(folder, each["mountPath"])]
    if not mounts:
        return own
    mount = max(mounts, key=lambda each: len(posixpath.normpath(each["mountPath"])))
    if mount.get("subPathExpr"):
        return own
    volume: Object = next((each for each in pod["spec"].get("volumes", []) if each["name"] == mount["name"]), {})
    rest = posixpath.relpath(folder, posixpath.normpath(mount["mountPath"]))
    below = posixpath.normpath(posixpath.join(mount.get("subPath", ""), rest))
    if claim := volume.get("persistentVolumeClaim"):
        return "claim", claim["claimName"], below
    if share := volume.get("nfs"):
        return "share", share["server"], posixpath.normpath(posixpath.join(share["path"], below))
    if path := volume.get("hostPath"):
        return "node", pod["spec"].get("nodeName", ""), posixpath.normpath(posixpath.join(path["path"], below))
    return own


def _inside(folder: str, mount: str) -> bool:
    top = posixpath.normpath(mount)
    return folder == top or folder.startswith(f"{top.rstrip('/')}/")


def groups(targets: Sequence[Target]) -> list[list[Target]]:
    """Those that share a folder together, in the order of their numbers; the first that runs is to get it."""
    found: dict[tuple[str, ...], list[Target]] = {}
    for each in sorted(targets, key=lambda target: (bool(target.wrong), natural(target.pod))):
        found.setdefault(each.place, []).append(each)
    return sorted(found.values(), key=lambda group: natural(group[0].pod))


def natural(name: str) -> list[tuple[int, str]]:
    """For sorting: pod-2 before pod-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
