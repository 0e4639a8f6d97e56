"""A GPU pod behind a load balancer: what is made, what is waited for, what is shown, and what goes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Object, Request
from gpuctl.eks.gpu_pod import exposure, objects
from gpuctl.eks.gpu_pod.exposure import Exposure
from gpuctl.eks.gpu_pod.model import Form
from gpuctl.workflows import eks_expose
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_expose import Exposer
from tests.rig.standin_namespace import StandinNamespace

PLACE = Place("lab", "gpu", "lab", "team", [])
OFFICE, HOME = Exposure(("203.0.113.0/24",)), Exposure(("198.51.100.7/32",))
POD = objects.pod("gpu", Form("registry/ml:1"), "s", "k")
NAME = {"status": {"loadBalancer": {"ingress": [{"hostname": "k8s-1.elb.example.com"}]}}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eks_expose, "LOOK_S", 0)
    monkeypatch.setattr(Exposer, "listen", lambda *_, **__: None)  # needs a pod: tests/integration/test_eks_pod.py


def exposer(cluster: StandinNamespace, *answers: bytes | GpuctlError, limit_s: float = 60) -> Exposer:
    rest = list(answers)

    def greeting(*_: object) -> bytes:
        answer = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(answer, GpuctlError):
            raise answer
        return answer

    return Exposer(cluster, PLACE, limit_s, lambda _: None, greeting)


def with_service(desired: Exposure, *more: Object) -> StandinNamespace:
    cluster = StandinNamespace()
    body = exposure.service("gpu", desired)
    for one in more:
        body = {**body, **one}
    cluster.add(body)
    return cluster


def ranges(cluster: StandinNamespace) -> Any:
    return cluster.items[cluster.name("Service", "gpu-ssh")]["spec"]["loadBalancerSourceRanges"]


def named(cluster: StandinNamespace) -> Callable[[Request], None]:
    """The controller names the load balancer as soon as its Service is made."""

    def act(request: Request) -> None:
        if request.method == "POST" and request.body is not None:
            request.body.update(NAME)

    return act


def test_it_is_made_once_and_asked_again_until_sshd_answers() -> None:
    cluster = StandinNamespace()
    cluster.refuse = named(cluster)
    answers = (Unreachable("x", "its name is not resolved"), b"", b"SSH-2.0-OpenSSH_9.2")
    for _ in range(2):
        (finding,) = exposer(cluster, *answers).follow(POD, "nlb", OFFICE)
        assert finding.verdict is Verdict.OK
        assert finding.message == "sshd answers at k8s-1.elb.example.com:22, open to 203.0.113.0/24"
    assert cluster.writes == [("POST", "services")]


def test_a_command_that_was_killed_goes_on_when_it_is_repeated() -> None:
    cluster = StandinNamespace()

    def killed(_: Request) -> None:
        raise KeyboardInterrupt

    cluster.refuse = killed
    with pytest.raises(KeyboardInterrupt):
        exposer(cluster, b"").follow(POD, "nlb", OFFICE)
    assert cluster.writes == []
    cluster.refuse = named(cluster)
    (finding,) = exposer(cluster, b"SSH-2.0").follow(POD, "nlb", OFFICE)
    assert finding.verdict is Verdict.OK


def test_other_ranges_change_it() -> None:
    cluster = with_service(OFFICE, NAME)
    exposer(cluster, b"SSH-2.0").follow(POD, "nlb", HOME)
    assert (ranges(cluster), cluster.writes) == (list(HOME.ranges), [("PATCH", "services/gpu-ssh")])


def test_a_load_balancer_that_this_machine_does_not_reach_is_unknown() -> None:
    cluster = with_service(OFFICE, NAME)
    (finding,) = exposer(cluster, Unreachable("x", "no answer within 20 s"), limit_s=-1).follow(POD, "nlb", OFFICE)
    assert (finding.verdict, "no answer within 20 s" in finding.message) == (Verdict.UNKNOWN, True)
    assert "is this machine in 203.0.113.0/24?" in finding.hint


def test_a_quota_ends_the_wait_at_once_and_names_the_api_as_another_path() -> None:
    cluster = with_service(OFFICE)
    event = {"type": "Warning", "message": "TooManyLoadBalancers: limit", "lastTimestamp": "2026-01-01T00:00:00Z"}
    cluster.add({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, **event})
    (finding,) = exposer(cluster, b"").follow(POD, "nlb", OFFICE)
    assert (finding.verdict, "a quota of load balancers is used up" in finding.message) == (Verdict.FAIL, True)
    assert eks_expose.MEANWHILE in finding.hint


def test_no_controller_is_named_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eks_expose, "UNTAKEN_S", -1)
    (finding,) = exposer(with_service(OFFICE), b"").follow(POD, "nlb", OFFICE)
    assert (finding.verdict, finding.hint.startswith(exposure.INSTALL)) == (Verdict.FAIL, True)


def test_without_a_choice_its_state_is_reported_and_nothing_is_written() -> None:
    cluster = with_service(OFFICE, NAME)
    (finding,) = exposer(cluster, b"").follow(POD, None, None)
    assert (finding.verdict, cluster.writes) == (Verdict.OK, [])
    assert exposer(StandinNamespace(), b"").follow(POD, None, None) == []


def test_the_plan_names_ranges_and_an_unknown_cost_and_is_empty_without_a_change() -> None:
    lines = "\n".join(eks_expose.plan(None, OFFICE, PLACE))
    assert "with public addresses is made for gpu in team" in lines
    assert "open to 203.0.113.0/24" in lines
    assert "cost: UNKNOWN USD an hour" in lines
    assert "whole internet" in "\n".join(eks_expose.plan(None, Exposure(("0.0.0.0/0",)), PLACE))
    assert eks_expose.plan(exposure.service("gpu", OFFICE), OFFICE, PLACE) == []
    assert "is changed" in eks_expose.plan(exposure.service("gpu", OFFICE), HOME, PLACE)[0]


def test_a_service_of_somebody_else_is_refused() -> None:
    cluster = StandinNamespace()
    cluster.add({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gpu-ssh"}, "spec": {}})
    with pytest.raises(InvalidInput, match="Service gpu-ssh that gpuctl did not make"):
        eks_expose.live_or_refused(cluster, PLACE)
    assert eks_expose.live_if_permitted(cluster, PLACE) is None  # a login goes on through the API


def test_a_login_needs_no_right_to_read_services() -> None:
    class Closed(StandinNamespace):
        def once(self, request: Request, silent_s: float = 0) -> Object:
            if "/services" in request.path:
                raise Forbidden(request.doing, "services are forbidden")
            return super().once(request, silent_s)

    assert eks_expose.live_if_permitted(Closed(), PLACE) is None
    with pytest.raises(InvalidInput, match="services are forbidden"):
        eks_expose.live_or_refused(Closed(), PLACE)


def test_a_removal_waits_until_the_controller_has_let_the_service_go() -> None:
    cluster, notes = with_service(OFFICE), list[str]()
    service = cluster.items[cluster.name("Service", "gpu-ssh")]
    cluster.refuse = lambda request: None
    assert eks_expose.withdraw(cluster, PLACE, notes.append)
    assert cluster.writes == [("DELETE", "services/gpu-ssh")]
    assert not eks_expose.withdraw(cluster, PLACE, notes.append)
    # A Service that stays, as nothing removes its finalizer.
    cluster.items[cluster.name("Service", "gpu-ssh")] = service
    cluster.delete = lambda *_, **__: None  # type: ignore[method-assign]
    with pytest.raises(GpuctlError, match="it still exists") as refused:
        eks_expose.remove(cluster, service, notes.append, limit_s=-1)
    assert "does the AWS Load Balancer Controller run" in refused.value.hint
