"""Stand-in for the AWS Load Balancer Controller and its Network Load Balancers, for one real node.

    with balancing(cluster):
        ...

A Service of type LoadBalancer gets the controller's finalizer, and an address of the node's own network namespace, on
which a program of ours takes connections from the Service's source ranges and passes them to its pod, as one with
target type ip does. Each change of the Service gets the controller's event. A deleted Service keeps its finalizer until
that program has ended.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from tests.rig.kube import node
from tests.rig.kube.plane import Plane

FINALIZER = "service.k8s.aws/resources"
ADDRESS = node.ITS


class StandinController:
    """Follows Services; one program for each that has a pod."""

    def __init__(self, cluster: Plane) -> None:
        self.cluster = cluster
        self.reported: dict[str, str] = {}
        self.programs: dict[str, tuple[list[str], subprocess.Popen[bytes]]] = {}

    def act(self, service: dict[str, Any]) -> None:
        """Bring a load balancer to what its Service says, or remove it."""
        meta, spec = service["metadata"], service["spec"]
        url = f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}"
        if spec["type"] != "LoadBalancer":
            return
        if "deletionTimestamp" in meta:
            self.stop(meta["uid"])
            self.cluster.api("PATCH", url, {"metadata": {"finalizers": None}})
            return
        if FINALIZER not in meta.get("finalizers", []):
            self.cluster.api("PATCH", url, {"metadata": {"finalizers": [FINALIZER]}})
        selector = ",".join(f"{name}={value}" for name, value in spec["selector"].items())
        pods = self.cluster.api("GET", f"/api/v1/namespaces/{meta['namespace']}/pods?labelSelector={selector}")["items"]
        addresses = [pod["status"].get("podIP") for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        assert any(addresses), "no pod yet: tried again a moment later"
        target = next(filter(None, addresses))
        port = spec["ports"][0]
        argv = [f"{ADDRESS}:{port['port']}", f"{target}:{port['targetPort']}", *spec["loadBalancerSourceRanges"]]
        if self.programs.get(meta["uid"], ([], None))[0] != argv:
            self.stop(meta["uid"])
            self.programs[meta["uid"]] = argv, _start(argv)
        ingress = {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}}  # AWS's have a name in DNS
        self.cluster.api("PATCH", f"{url}/status", ingress)
        content = json.dumps([argv, meta.get("annotations")], sort_keys=True)
        if self.reported.get(meta["uid"]) != content:
            self.report(service)
            self.reported[meta["uid"]] = content

    def report(self, service: dict[str, Any]) -> None:
        """The event of the controller once AWS has what a Service says."""
        meta = service["metadata"]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        event = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {"kind": "Service", **{key: meta[key] for key in ("name", "namespace", "uid")}},
            "type": "Normal",
            "reason": "SuccessfullyReconciled",
            "message": "Successfully reconciled",
            "source": {"component": "service"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.cluster.api("POST", f"/api/v1/namespaces/{meta['namespace']}/events", event)

    def stop(self, uid: str) -> None:
        """End the program of a Service."""
        if uid in self.programs:
            program = self.programs.pop(uid)[1]
            program.kill()
            program.wait()


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{node.NAME}"]
    return subprocess.Popen([*inside, sys.executable, "-m", __name__, *argv], stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def balancing(cluster: Plane) -> Iterator[StandinController]:
    """Load balancers within the block."""
    controller = StandinController(cluster)
    try:
        with cluster.follower("/api/v1/services", controller.act):
            yield controller
    finally:
        for uid in list(controller.programs):
            controller.stop(uid)


# ---- the program in the node's network namespace ---------------------------------------------------------------------


def _serve(listen: str, target: str, ranges: list[str]) -> None:
    host, port = listen.rsplit(":", 1)
    allowed = [ip_network(one) for one in ranges]
    with socket.create_server((host, int(port))) as server:
        while True:
            client, (peer, _) = server.accept()
            if any(ip_address(peer) in one for one in allowed):
                threading.Thread(target=_relay, args=(client, target), daemon=True).start()
            else:  # a security group drops it in silence; closing says the same sooner
                client.close()


def _relay(client: socket.socket, target: str) -> None:
    host, port = target.rsplit(":", 1)
    with client, contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10) as server:
        server.settimeout(None)
        others = {client: server, server: client}
        while True:
            for source in select.select(list(others), [], [])[0]:
                data = source.recv(65536)
                if not data:
                    return
                others[source].sendall(data)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], sys.argv[3:])
