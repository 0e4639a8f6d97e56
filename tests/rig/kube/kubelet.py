"""A stand-in for the kubelets of a test's cluster, and objects to create there.

It does a kubelet's part through the API alone, for two nodes with eight GPUs each: pods that are bound start, those
that are being deleted end, and `kubectl logs` shows what stands in the annotations standin/log and
standin/previous-log. A pod with the annotation standin/pending never starts.
"""

from __future__ import annotations

import http.server
import itertools
import select
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.rig.kube.follower import Follower

Api = Callable[..., dict[str, Any]]
INFO = {
    "architecture": "amd64",
    "bootID": "boot-1",
    "containerRuntimeVersion": "standin://1",
    "kernelVersion": "6.8.0-standin",
    "kubeProxyVersion": "",
    "kubeletVersion": "v1.30.0-standin",
    "machineID": "standin",
    "operatingSystem": "linux",
    "osImage": "standin",
    "systemUUID": "standin",
}
ROOM = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}


class StandinKubelet:
    """`api(method, url, body)` asks the cluster; `certificate` and `key` are for the port that serves logs."""

    def __init__(self, api: Api, follower: Callable[..., Follower], certificate: Path, key: Path) -> None:
        self._api = api
        self._addresses = (f"10.244.0.{number % 250 + 2}" for number in itertools.count(2))
        self._pods = follower("/api/v1/pods", self._look_after, "fieldSelector=spec.nodeName!%3D")
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(certificate, key)
        self._logs = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _serving_logs(api))
        self._logs.socket = trust.wrap_socket(self._logs.socket, server_side=True)

    def start(self) -> None:
        """Bring up the nodes and look after their pods."""
        threading.Thread(target=self._logs.serve_forever, args=(0.1,), daemon=True, name="standin-logs").start()
        for number in range(2):
            self._register(f"gpu-{number}", self._logs.server_port)
        self._pods.start()

    def stop(self) -> None:
        self._pods.stop()
        self._logs.shutdown()
        self._logs.server_close()

    def _register(self, name: str, port: int) -> None:
        ready = [{"type": "Ready", "status": "True", "reason": "StandIn", "message": ""}]
        status = {
            "capacity": ROOM,
            "allocatable": ROOM,
            "conditions": ready,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": INFO,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        self._api("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        self._api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": []}})

    def _look_after(self, found: dict[str, Any]) -> None:
        meta = found["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if "deletionTimestamp" in meta:
            self._api("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        elif found["status"].get("phase") == "Pending" and "standin/pending" not in (meta.get("annotations") or {}):
            self._api("PATCH", f"{path}/status", {"status": running(found, next(self._addresses))})


def _serving_logs(api: Api) -> type[http.server.BaseHTTPRequestHandler]:
    class Logs(http.server.BaseHTTPRequestHandler):
        """The one part of a kubelet's own API that is here."""

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            _, what, namespace, name, _ = f"{path}/////".split("/")[:5]
            meta = api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]
            kept = "standin/previous-log" if "previous=true" in query else "standin/log"
            text = (meta.get("annotations") or {}).get(kept)
            self.send_response(200 if what == "containerLogs" and text is not None else 404)
            self.end_headers()
            self.wfile.write((text or "no such log").encode())
            while "follow=true" in query and "standin/running" in (meta.get("annotations") or {}):
                if select.select([self.connection], [], [], 0.2)[0]:  # the reader has gone
                    break

        def log_message(self, *_: object) -> None:
            """Tests have enough to print."""

    return Logs


def running(found: dict[str, Any], address: str) -> dict[str, Any]:
    """The status of a pod whose containers run."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in found["spec"]["containers"]
    ]
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
    where = {"podIP": address, "podIPs": [{"ip": address}], "startTime": now}
    return {"phase": "Running", "conditions": conditions, "containerStatuses": told, **where}


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    """A Deployment whose pods have the label app=NAME and say that they listen on port 8080."""
    container = {"name": "main", "image": "example/main:1", "ports": [{"containerPort": 8080}]}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def pod(name: str, *containers: str, **annotations: str) -> dict[str, Any]:
    """A pod with these containers."""
    made = [{"name": each, "image": f"example/{each}:1"} for each in containers or ("main",)]
    meta = {"name": name, "labels": {"app": name}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": made}}
