"""Pod that asks one Kubernetes node, as root in its own namespaces, and lives no longer than the question."""

from __future__ import annotations

from typing import Any

from gpuctl.domain import pod_status

STUCK = (*pod_status.IMAGE, *pod_status.NOT_CREATED, pod_status.CRASHED)
CONTAINER = "probe"
RUN = "gpuctl.dev/probe"  # label with the run that made the pod
LABELS = {"app.kubernetes.io/managed-by": "gpuctl", "app.kubernetes.io/component": "node-probe"}


def manifest(name: str, node: str, image: str, run: str, limit_s: int) -> dict[str, Any]:
    """The pod: privileged, with the node's processes and network, without a token.

    The kubelet ends it after `limit_s`.
    """
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", str(limit_s)],
        "securityContext": {"privileged": True},
    }
    spec = {
        "nodeName": node,
        "hostPID": True,
        "hostNetwork": True,  # its adapters are asked; and a node without a working CNI runs such pods alone
        "restartPolicy": "Never",
        "activeDeadlineSeconds": limit_s,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {**LABELS, RUN: run}},
        "spec": spec,
    }


def failure(pod: dict[str, Any]) -> str:
    """Why it will not run; "" if it still may."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return str(status.get("message") or status.get("reason") or f"it is {status['phase']}")
    for one in pod_status.statuses(pod):
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in STUCK:
            return ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key))
    return ""
