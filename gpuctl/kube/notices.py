"""What is new between two states of a cluster's objects: crashes, finished roll-outs, passed thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuctl.kube.model import Container, Pod, pod

LOUD = ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "RunContainerError")
ROLLED = ("Deployment", "StatefulSet", "DaemonSet")


@dataclass(frozen=True)
class Thresholds:
    """When a number is worth a notice: restarts of a container; seconds that a pod may be pending, or that a running
    one may not be ready. 0: never.
    """

    restarts: int = 0
    pending: float = 0.0
    not_ready: float = 0.0


def of(before: Mapping[str, Any] | None, after: Mapping[str, Any], at: Thresholds) -> list[str]:
    """The notices for a pod; `before` is None for one that was not known."""
    return _of_pod(pod(before) if before else None, pod(after), at)


def of_rollout(after: Mapping[str, Any]) -> str:
    """The notice for a Deployment, StatefulSet or DaemonSet whose roll-out is complete."""
    return f"{after['kind'].lower()} {_where(after)}: rolled out, {_wanted(after)} ready"


def _where(found: Mapping[str, Any]) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def _of_pod(before: Pod | None, after: Pod, at: Thresholds) -> list[str]:
    was = {c.name: c for c in before.containers} if before else {}
    name = f"pod {after.namespace}/{after.name}"
    found = [text for c in after.containers for text in _of_container(name, was.get(c.name), c, at)]
    if after.phase == "Failed" and before is not None and before.phase != "Failed" and not found:
        found.append(f"{name}: failed ({after.status})")
    return found


def _of_container(name: str, was: Container | None, now: Container, at: Thresholds) -> list[str]:
    if was is None:
        return []
    found = []
    if now.restarts > was.restarts:
        found.append(f"{name}: {now.name} crashed ({now.last_why or 'no reason told'}), restart {now.restarts}")
    if now.exit_code and was.exit_code is None and now.restarts == was.restarts:
        found.append(f"{name}: {now.name} ended with exit status {now.exit_code} ({now.why or 'no reason told'})")
    if now.why in LOUD and was.why != now.why:
        found.append(f"{name}: {now.name} is in {now.why}")
    if at.restarts and was.restarts < at.restarts <= now.restarts:
        found.append(f"{name}: {now.name} has restarted {now.restarts} times, the threshold is {at.restarts}")
    return found


def rolled_out(found: Mapping[str, Any]) -> bool:
    """Whether a roll-out is complete, as `kubectl rollout status` judges it."""
    status, wanted = found.get("status") or {}, _wanted(found)
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        return False
    if found.get("kind") == "DaemonSet":
        return bool(status.get("updatedNumberScheduled", 0) == status.get("numberAvailable", 0) == wanted)
    counts = [status.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "replicas")]
    return all(count == wanted for count in counts)


def _wanted(found: Mapping[str, Any]) -> int:
    if found.get("kind") == "DaemonSet":
        return int((found.get("status") or {}).get("desiredNumberScheduled", 0))
    return int((found.get("spec") or {}).get("replicas", 1))


def overdue(found: Mapping[str, Any], at: Thresholds, now: float) -> str:
    """A notice for a pod that is pending, or running and not ready, for longer than the threshold; else empty."""
    if found.get("kind") != "Pod":
        return ""
    one = pod(found)
    if one.phase == "Pending":
        what, since, most = "pending", found["metadata"]["creationTimestamp"], at.pending
    else:
        what, since, most = "not ready", _unready_since(found), at.not_ready
    if not most or not since or one.leaving or one.phase not in ("Pending", "Running"):
        return ""
    seconds = now - datetime.fromisoformat(since).timestamp()
    told = f"pod {one.namespace}/{one.name}: {what} for {seconds:.0f} s, the threshold is {most:.0f} s"
    return told if seconds >= most else ""


def _ready(found: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})


def _unready_since(found: Mapping[str, Any]) -> str:
    told = _ready(found)
    return str(told.get("lastTransitionTime") or "") if told.get("status") == "False" else ""


def of_node(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[str]:
    """The notice for a node that is ready no more, or again."""
    was, now = _ready(before or {}).get("status"), _ready(after)
    name = f"node {after['metadata']['name']}"
    if before is None or was == now.get("status"):
        return []
    if now.get("status") == "True":
        return [f"{name}: ready again"] if was else []
    return [f"{name}: not ready ({now.get('reason') or 'no reason told'})"] if was in ("True", None) else []
