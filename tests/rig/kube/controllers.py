"""A stand-in for the controllers and the scheduler, where only etcd and kube-apiserver are there (setup-envtest).

It does what pods and namespaces alone need: every namespace gets its default account and the certificate of the API,
pods without a node get one, and a namespace that is being deleted is emptied and ends. Nothing acts upon Deployments,
StatefulSets, Jobs or claims: tests of those need the real controllers.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

Api = Callable[..., dict[str, Any]]


class StandinControllers:
    """`api(method, url, body)` asks the cluster; `ca` is the certificate that pods are to trust."""

    def __init__(self, api: Api, ca: str) -> None:
        self._api = api
        self._ca = ca
        self._ended = threading.Event()
        self._turn = itertools.count()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="standin-controllers").start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            with contextlib.suppress(OSError, AssertionError, ValueError, LookupError):
                for namespace in self._api("GET", "/api/v1/namespaces")["items"]:
                    self._namespace(namespace)
                self._schedule()

    def _namespace(self, namespace: dict[str, Any]) -> None:
        at = f"/api/v1/namespaces/{namespace['metadata']['name']}"
        if "deletionTimestamp" in namespace["metadata"]:
            self._empty(at.removeprefix("/api/v1/"))
            self._api("PUT", f"{at}/finalize", {**namespace, "spec": {"finalizers": []}})
            return
        wanted = {
            "serviceaccounts": {"metadata": {"name": "default"}},
            "configmaps": {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self._ca}},
        }
        for plural, body in wanted.items():
            present = [item["metadata"]["name"] for item in self._api("GET", f"{at}/{plural}")["items"]]
            if body["metadata"]["name"] not in present:
                self._api("POST", f"{at}/{plural}", body)

    def _empty(self, namespace: str) -> None:
        groups = [group["preferredVersion"]["groupVersion"] for group in self._api("GET", "/apis")["groups"]]
        for root in ("/api/v1", *(f"/apis/{group}" for group in groups)):
            for kind in self._api("GET", root)["resources"]:
                if kind["namespaced"] and "deletecollection" in kind["verbs"]:
                    self._api("DELETE", f"{root}/{namespace}/{kind['name']}?gracePeriodSeconds=0")

    def _schedule(self) -> None:
        waiting = self._api("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D")["items"]
        nodes = [node["metadata"]["name"] for node in self._api("GET", "/api/v1/nodes")["items"]] if waiting else []
        for pod in (pod for pod in waiting if nodes and "deletionTimestamp" not in pod["metadata"]):
            meta = pod["metadata"]
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": nodes[next(self._turn) % len(nodes)]},
            }
            self._api("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", binding)
