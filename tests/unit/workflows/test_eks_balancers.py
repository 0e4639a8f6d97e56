"""Load balancers that controllers remove before a cluster goes: order, limits, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Finding
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Object as KubeObject
from gpuctl.edges.kube.cluster import Request
from gpuctl.eks.gpu_pod import exposure
from gpuctl.eks.gpu_pod.exposure import Exposure
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.removal import Belongings
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_balancers
from tests.rig.standin_namespace import StandinNamespace

HOST = "k8s-web-0123.elb.us-east-1.amazonaws.com"
BALANCER = Object(
    Kind.LOAD_BALANCER, "k8s-web", tags={"elbv2.k8s.aws/cluster": "lab"}, data={"DNSName": HOST.capitalize()}
)
STATE = State("lab", "us-east-1", [Object(Kind.CLUSTER, "lab", state="ACTIVE")])
AROUND = Belongings([BALANCER])
AWS: Any = None


class StandinController(StandinNamespace):
    """Stand-in for a cluster whose controllers remove an object `looks` readings after it was deleted."""

    def __init__(self, looks: int = 0, refuse: Callable[[Request], GpuctlError | None] = lambda _: None) -> None:
        super().__init__()
        self.looks, self.every = looks, refuse
        self.ending: dict[str, int] = {}

    def once(self, request: Request, silent_s: float = 0) -> KubeObject:
        if error := self.every(request):
            raise error
        for path in [path for path, left in self.ending.items() if left <= 0]:
            del self.ending[path], self.items[path]
        if request.method == "GET" and request.path.endswith("/services"):
            self.ending = {path: left - 1 for path, left in self.ending.items()}
        return super().once(request, silent_s)

    def _change(self, request: Request, path: str) -> KubeObject:
        if request.method != "DELETE":
            return super()._change(request, path)
        self.ending[path] = self.looks
        self.items[path]["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
        return self.items[path]


def service(name: str, kind: str = "LoadBalancer", host: str = HOST) -> dict[str, Any]:
    status = {"loadBalancer": {"ingress": [{"hostname": host}]}} if host else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"type": kind},
        "status": status,
    }


def ingress(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "team"}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": {}}


def withdraw(
    cluster: StandinNamespace, monkeypatch: pytest.MonkeyPatch, *looks: list[Object], lines: list[str] | None = None
) -> list[Finding]:
    """`looks`: load balancers that AWS lists, one after the other; the last again and again."""
    answers = list(looks) or [[]]
    monkeypatch.setattr(eks_balancers, "connect", lambda *_: cluster)
    clock = iter(range(0, 10**9, 60))
    waiter = Waiter((lines if lines is not None else []).append, lambda _: None, lambda: float(next(clock)))
    return eks_balancers.withdraw(
        AWS, STATE, AROUND, lambda: answers.pop(0) if len(answers) > 1 else answers[0], waiter
    )


def test_services_and_ingresses_go_and_their_load_balancers_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, lines = StandinController(looks=2), list[str]()
    cluster.add(service("front"))
    cluster.add(service("inside", "ClusterIP", host=""))
    cluster.add(exposure.service("gpu", Exposure(("203.0.113.0/24",))))
    cluster.add(ingress("site"))
    theirs = Object(Kind.LOAD_BALANCER, "orphan", data={"DNSName": "other"})
    found = withdraw(cluster, monkeypatch, [BALANCER, theirs], [theirs], lines=lines)
    assert found == []
    assert [path for _, path in cluster.writes] == ["services/front", "services/gpu-ssh", "ingresses/site"]
    assert {item["metadata"]["name"] for item in cluster.items.values()} == {"inside"}
    assert lines[0] == "deleting Service team/front in Kubernetes, and with it its load balancer"
    assert any(line.startswith("waiting for the end of Services and Ingresses") for line in lines)
    assert lines[-1].startswith("the end of Services and Ingresses with their load balancers: done")


def test_nothing_is_awaited_where_nothing_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, lines = StandinController(), list[str]()
    cluster.add(service("inside", "ClusterIP", host=""))
    assert withdraw(cluster, monkeypatch, [BALANCER], lines=lines) == []
    assert (cluster.writes, lines) == ([], [])


def test_an_interrupted_removal_is_awaited_and_nothing_is_deleted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = StandinController(looks=3)
    cluster.add(service("front"))

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(eks_balancers, "connect", lambda *_: cluster)
    waiter = Waiter(lambda _: None, interrupted)
    with pytest.raises(KeyboardInterrupt):
        eks_balancers.withdraw(AWS, STATE, AROUND, list, waiter)
    assert withdraw(cluster, monkeypatch) == []
    assert cluster.writes == [("DELETE", "services/front")]


def test_a_controller_that_does_not_run_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = StandinController(looks=10**6)
    cluster.add(service("front"))
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "AccessDenied: no permission"}
    cluster.add(event)
    [finding] = withdraw(cluster, monkeypatch, [BALANCER])
    assert (finding.check, str(finding.verdict)) == ("load-balancers", "WARN")
    assert "it is still Service team/front (Service team/front: AccessDenied: no permission)" in finding.message
    assert "deleted by AWS's API" in finding.message


def test_a_kubernetes_that_does_not_answer_is_named_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list[str]()
    silent = StandinController(refuse=lambda _: Unreachable("list services", "no answer"))
    [finding] = withdraw(silent, monkeypatch, lines=lines)
    assert (str(finding.verdict), "load balancer k8s-web" in finding.message) == ("WARN", True)
    assert len(lines) == 1
    assert lines[0].startswith("Services and Ingresses were not removed through Kubernetes first: cannot list services")
    assert "deleted by AWS's API" in lines[0]
    waiter = Waiter(lines.append)
    assert eks_balancers.withdraw(AWS, STATE, Belongings(), list, waiter) == []  # AWS has none: nothing to fall back on


def test_an_object_that_may_not_be_deleted_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: Request) -> GpuctlError | None:
        is_it = request.method == "DELETE" and request.path.endswith("/front")
        return Forbidden("delete Service front", "a policy forbids it") if is_it else None

    cluster = StandinController(refuse=refuse)
    cluster.add(service("front"))
    cluster.add(ingress("site"))
    [finding] = withdraw(cluster, monkeypatch)
    assert "a policy forbids it" in finding.message
    assert cluster.writes == [("DELETE", "ingresses/site")]


def test_a_kind_that_may_not_be_listed_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: Request) -> GpuctlError | None:
        is_it = request.path.endswith("/ingresses")
        return Forbidden("list ingresses", "no permission to list ingresses") if is_it else None

    cluster = StandinController(looks=1, refuse=refuse)
    cluster.add(service("front"))
    [finding] = withdraw(cluster, monkeypatch)
    assert "no permission to list ingresses" in finding.message
    assert cluster.writes == [("DELETE", "services/front")]
    assert cluster.items == {}  # it was awaited


def test_without_the_right_to_list_any_kind_aws_is_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = StandinController(refuse=lambda _: Forbidden("list services", "no permission"))
    [finding] = withdraw(silent, monkeypatch)
    assert "were not removed through Kubernetes first: cannot list services: no permission" in finding.message
    assert "load balancer k8s-web" in finding.message


def test_a_load_balancer_that_no_controller_of_the_cluster_made_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """nginx copies the address of the load balancer in front of it, which others made, into its Ingresses."""
    cluster = StandinController()
    cluster.add({**ingress("site"), "status": {"loadBalancer": {"ingress": [{"hostname": HOST}]}}})
    theirs = replace(BALANCER, tags={"made-by": "terraform"})
    assert withdraw(cluster, monkeypatch, [theirs]) == []


def test_the_hint_is_about_what_is_left_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = StandinController()
    cluster.add(service("front"))
    [finding] = withdraw(cluster, monkeypatch, [BALANCER])
    assert "it is still load balancer k8s-web" in finding.message
    assert "Controller" not in finding.hint
    assert "are gone" in finding.hint


def test_a_service_that_is_made_again_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Remade(StandinController):
        """Stand-in for a cluster in which a tool such as Argo CD makes a deleted Service again."""

        def once(self, request: Request, silent_s: float = 0) -> KubeObject:
            answer = super().once(request, silent_s)
            if request.method == "GET" and self.writes and not self.items:
                self.add(service("front", host=""))
            return answer

    cluster = Remade()
    cluster.add(service("front"))
    [finding] = withdraw(cluster, monkeypatch, [BALANCER], [])
    assert (str(finding.verdict), "Service team/front" in finding.message) == ("WARN", True)
    assert "Argo CD or Flux" in finding.hint
    assert cluster.writes == [("DELETE", "services/front")]


@pytest.mark.parametrize("state", ["CREATING", "DELETING", "FAILED"])
def test_kubernetes_is_not_asked_while_no_control_plane_runs(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eks_balancers, "connect", lambda *_: pytest.fail("it is asked"))
    made = State("lab", "us-east-1", [Object(Kind.CLUSTER, "lab", state=state)])
    assert eks_balancers.withdraw(AWS, made, AROUND, list, Waiter(lambda _: None)) == []


def test_the_address_of_a_gateway_is_that_of_its_load_balancer() -> None:
    assert eks_balancers.addresses({"status": {"addresses": [{"type": "Hostname", "value": HOST.upper()}]}}) == {HOST}
