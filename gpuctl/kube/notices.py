"""Notices from the difference of two object states: crashes, finished rollouts, exceeded thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuctl.domain.pod_status import CRASHED, IMAGE, NOT_CREATED
from gpuctl.kube.model import Container, Pod, pod

LOUD = (CRASHED, *NOT_CREATED, *IMAGE)  # reasons of a waiting container
ROLLED = ("Deployment", "StatefulSet", "DaemonSet")


@dataclass(frozen=True)
class Thresholds:
    """When a number is worth a notice: restarts of a container; seconds that a pod may be pending, or that a running
    one may not be ready. 0: never.
    """

    restarts: int = 0
    pending: float = 0.0
    not_ready: float = 0.0


def pod_notices(before: Mapping[str, Any] | None, after: Mapping[str, Any], thresholds: Thresholds) -> list[str]:
    """Return the notices for a pod; `before` is None for a pod that was unknown."""
    return _pod_notices(pod(before) if before else None, pod(after), thresholds)


def rollout_notice(after: Mapping[str, Any]) -> str:
    """Return the notice for a Deployment, StatefulSet or DaemonSet whose rollout is complete."""
    return f"{after['kind'].lower()} {_where(after)}: rolled out, {_desired_replicas(after)} ready"


def _where(item: Mapping[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _pod_notices(before: Pod | None, after: Pod, thresholds: Thresholds) -> list[str]:
    if after.leaving:  # a rollout, scale-down or drain ends its containers, by SIGKILL after the grace period
        return []
    was = {c.name: c for c in (*before.containers, *before.init_containers)} if before else {}
    name = f"pod {after.namespace}/{after.name}"
    containers = (*after.init_containers, *after.containers)
    messages = [text for c in containers for text in _container_notices(name, was.get(c.name), c, thresholds)]
    if after.phase == "Failed" and before is not None and before.phase != "Failed" and not messages:
        messages.append(f"{name}: failed ({after.status})")
    return messages


def _container_notices(name: str, was: Container | None, now: Container, thresholds: Thresholds) -> list[str]:
    if was is None:
        return []
    messages = []
    if now.restarts > was.restarts:
        ended = "ended" if now.last_why == "Completed" else "crashed"  # with exit status 0
        messages.append(f"{name}: {now.name} {ended} ({now.last_why or 'no reason given'}), restart {now.restarts}")
    if now.exit_code and was.exit_code is None and now.restarts == was.restarts:
        messages.append(f"{name}: {now.name} ended with exit status {now.exit_code} ({now.why or 'no reason given'})")
    if now.why in LOUD and was.why != now.why:
        messages.append(f"{name}: {now.name} is in {now.why}")
    if thresholds.restarts and was.restarts < thresholds.restarts <= now.restarts:
        messages.append(
            f"{name}: {now.name} has restarted {now.restarts} times, the threshold is {thresholds.restarts}"
        )
    return messages


def rolled_out(item: Mapping[str, Any]) -> bool:
    """True if a rollout is complete by the rules of `kubectl rollout status`."""
    status, desired = item.get("status") or {}, _desired_replicas(item)
    if status.get("observedGeneration", 0) < item["metadata"].get("generation", 0):
        return False
    if item.get("kind") == "DaemonSet":
        return bool(status.get("updatedNumberScheduled", 0) == status.get("numberAvailable", 0) == desired)
    counts = [status.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "replicas")]
    return all(count == desired for count in counts)


def _desired_replicas(item: Mapping[str, Any]) -> int:
    if item.get("kind") == "DaemonSet":
        return int((item.get("status") or {}).get("desiredNumberScheduled", 0))
    return int((item.get("spec") or {}).get("replicas", 1))


def overdue_notice(item: Mapping[str, Any], thresholds: Thresholds, now: float) -> str:
    """Return a notice for a pod that is pending, or not ready, for longer than the threshold; else empty."""
    if item.get("kind") != "Pod":
        return ""
    overdue_pod = pod(item)
    if overdue_pod.phase == "Pending":
        what, since, most = "pending", item["metadata"]["creationTimestamp"], thresholds.pending
    else:
        what, since, most = "not ready", _unready_since(item), thresholds.not_ready
    if not most or not since or overdue_pod.leaving or overdue_pod.phase not in ("Pending", "Running"):
        return ""
    seconds = now - datetime.fromisoformat(since).timestamp()
    message = (
        f"pod {overdue_pod.namespace}/{overdue_pod.name}: {what} for {seconds:.0f} s, the threshold is {most:.0f} s"
    )
    return message if seconds >= most else ""


def _ready(item: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Ready"), {})


def _unready_since(item: Mapping[str, Any]) -> str:
    condition = _ready(item)
    return str(condition.get("lastTransitionTime") or "") if condition.get("status") == "False" else ""


def node_notices(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[str]:
    """Return the notice for a node that became ready or not ready."""
    was, now = _ready(before or {}).get("status"), _ready(after)
    name = f"node {after['metadata']['name']}"
    if before is None or was == now.get("status"):
        return []
    if now.get("status") == "True":
        return [f"{name}: ready again"] if was else []
    return [f"{name}: not ready ({now.get('reason') or 'no reason given'})"] if was in ("True", None) else []
