"""A stand-in for the kubelets and device plugins of an EKS node group: through the API alone, no container runs.

Nodes have the labels that EKS gives them. A node offers a resource once the pod of a plugin's DaemonSet is ready on it,
as a kubelet does when a plugin registers with it; `broken` has the pods of a plugin crash instead, as without a driver.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tests.rig.kube.kubelet import INFO, running
from tests.rig.kube.plane import Plane

PLUGINS = {"nvidia-device-plugin": "nvidia.com/gpu", "efa-device-plugin": "vpc.amazonaws.com/efa"}
ROOM = {"cpu": "96", "memory": "1Ti", "pods": "110"}


class StandinGpuNodes:
    """Nodes that start the pods of device plugins. `offers`: resource -> number of each node."""

    def __init__(self, plane: Plane, offers: Mapping[str, int]) -> None:
        self._plane, self._offers = plane, offers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="standin-gpu-nodes")
        self.nodes: list[str] = []
        self.broken: set[str] = set()  # names of containers

    def __enter__(self) -> StandinGpuNodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for node in self.nodes:
            self._plane.api("DELETE", f"/api/v1/nodes/{node}")

    def join(self, group: str, instance_type: str, *names: str, taints: Sequence[Mapping[str, str]] = ()) -> None:
        """Register nodes of a group."""
        for name in names:
            labels = {"eks.amazonaws.com/nodegroup": group, "node.kubernetes.io/instance-type": instance_type}
            ready = [{"type": "Ready", "status": "True", "reason": "StandIn", "message": ""}]
            status = {"capacity": ROOM, "allocatable": ROOM, "conditions": ready, "nodeInfo": INFO}
            # With its taints from the start: controllers place pods at once. The API adds one of a node that starts.
            spec = {"taints": list(taints)}
            made = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
            self._plane.api("POST", "/api/v1/nodes", made)
            self._plane.api("PATCH", f"/api/v1/nodes/{name}", {"spec": spec})
            self.nodes.append(name)

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            for pod in self._plane.api("GET", "/api/v1/pods?fieldSelector=spec.nodeName!%3D")["items"]:
                if pod["spec"]["nodeName"] in self.nodes:
                    with contextlib.suppress(AssertionError):  # it is gone
                        self._look_after(pod)

    def _look_after(self, pod: dict[str, Any]) -> None:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        container = pod["spec"]["containers"][0]["name"]
        if "deletionTimestamp" in meta:
            self._plane.api("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        elif container in self.broken:
            self._plane.api("PATCH", f"{path}/status", {"status": _crashed(pod)})
        elif container in PLUGINS:
            self._plane.api("PATCH", f"{path}/status", {"status": running(pod, "10.244.1.2")})
            offer = {PLUGINS[container]: str(self._offers[PLUGINS[container]])}
            self._plane.api(
                "PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": offer, "allocatable": offer}}
            )


def _crashed(pod: dict[str, Any]) -> dict[str, Any]:
    status = running(pod, "10.244.1.2")
    status["conditions"] = [{**one, "status": "False"} for one in status["conditions"] if one["type"] != "PodScheduled"]
    ended = {"exitCode": 1, "reason": "Error", "message": "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"}
    for one in status["containerStatuses"]:
        one |= {
            "ready": False,
            "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
            "lastState": {"terminated": ended},
        }
    return status
