"""Services and Ingresses that `gpuctl eks destroy` removes first: a real control plane, a stand-in controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuctl.edges.kube import cluster as kube
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.removal import Belongings
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_balancers
from tests.rig.kube import plane as planes
from tests.rig.kube.plane import Plane

FINALIZER = "service.k8s.aws/resources"  # the AWS Load Balancer Controller's
SERVICES = "/api/v1/namespaces/default/services"
STATE = State("lab", "us-east-1", [Object(Kind.CLUSTER, "lab", state="ACTIVE")])
AWS: Any = None


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    yield from planes.for_tests()


@pytest.fixture
def connected(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Plane:
    cluster = kube.connect("test", "", [plane.kubeconfig])
    monkeypatch.setattr(eks_balancers, "connect", lambda *_: cluster)
    return plane


def service(name: str, kind: str, *finalizers: str) -> dict[str, Any]:
    spec = {"type": kind, "ports": [{"port": 80}], "selector": {"app": name}}
    return {"metadata": {"name": name, "finalizers": list(finalizers)}, "spec": spec}


def names(plane: Plane) -> set[str]:
    return {one["metadata"]["name"] for one in plane.api("GET", SERVICES)["items"]} - {"kubernetes"}


def test_services_and_ingresses_go_once_their_controller_lets_go_and_others_stay(connected: Plane) -> None:
    plane = connected
    plane.api("POST", SERVICES, service("front", "LoadBalancer", FINALIZER))
    plane.api("POST", SERVICES, service("inside", "ClusterIP"))
    backend = {"service": {"name": "inside", "port": {"number": 80}}}
    ingress = {"metadata": {"name": "site"}, "spec": {"defaultBackend": backend}}
    ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    plane.api("POST", ingresses, ingress)
    lines = list[str]()

    def let_go(_: float) -> None:
        plane.api("PATCH", f"{SERVICES}/front", {"metadata": {"finalizers": []}})

    waiter = Waiter(lines.append, let_go)
    assert eks_balancers.withdraw(AWS, STATE, Belongings(), list, waiter) == []
    assert names(plane) == {"inside"}
    assert plane.api("GET", ingresses)["items"] == []
    assert any("usually 1 to 3 min): Service default/front" in line for line in lines)


def test_at_the_limit_the_newest_warning_of_what_is_left_is_the_cause(connected: Plane) -> None:
    plane = connected
    uid = plane.api("POST", SERVICES, service("stuck", "LoadBalancer", FINALIZER))["metadata"]["uid"]
    involved = {"kind": "Service", "name": "stuck", "namespace": "default", "uid": uid}
    for number, kind in enumerate(("Normal", "Warning")):
        event = {
            "metadata": {"name": f"stuck.{number}"},
            "involvedObject": involved,
            "type": kind,
            "reason": "FailedDeployModel",
            "message": f"{kind}: AccessDenied",
            "lastTimestamp": f"2026-11-29T12:00:0{1 - number}Z",
        }
        plane.api("POST", "/api/v1/namespaces/default/events", event)
    clock = iter(range(0, 10**9, 400))
    waiter = Waiter(lambda _: None, lambda _: None, lambda: float(next(clock)))
    [finding] = eks_balancers.withdraw(AWS, STATE, Belongings(), list, waiter)
    assert "Service default/stuck (Service default/stuck: Warning: AccessDenied)" in finding.message
    plane.api("PATCH", f"{SERVICES}/stuck", {"metadata": {"finalizers": []}})
