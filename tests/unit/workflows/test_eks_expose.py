"""A GPU pod behind a load balancer: what is made, what is waited for, what is shown, and what goes first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
DENIED = "Failed deploy model due to UnauthorizedOperation: ec2:AuthorizeSecurityGroupIngress"


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
    cluster.add(body, **{"creationTimestamp": "2026-01-01T00:00:00Z", **body["metadata"]})
    return cluster


def ranges(cluster: StandinNamespace) -> Any:
    return cluster.items[cluster.name("Service", "gpu-ssh")]["spec"]["loadBalancerSourceRanges"]


def report(cluster: StandinNamespace, name: str, at: str = "", **event: object) -> None:
    """An event of the controller. `at`: its time; "" for now."""
    time = at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    success = {"type": "Normal", "reason": exposure.SUCCESS}
    cluster.add(
        {"kind": "Event", "apiVersion": "v1", "metadata": {"name": name}, "lastTimestamp": time, **success, **event}
    )


def warn_of(cluster: StandinNamespace, name: str, message: str, at: str = "") -> None:
    report(cluster, name, at, type="Warning", reason="FailedDeployModel", message=message)


def acting(cluster: StandinNamespace, act: Callable[[], None]) -> Callable[[Request], None]:
    """The controller names the load balancer of a Service that is made, and acts on each change."""

    def answer(request: Request) -> None:
        if request.method == "POST" and request.body is not None:
            request.body.update(NAME)
        if request.method in ("POST", "PATCH"):
            act()

    return answer


def named(cluster: StandinNamespace) -> Callable[[Request], None]:
    """The controller does what each change of the Service says."""
    return acting(cluster, lambda: report(cluster, "done"))


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
    cluster.refuse = named(cluster)
    (finding,) = exposer(cluster, b"SSH-2.0").follow(POD, "nlb", HOME)
    assert finding.verdict is Verdict.OK
    assert (ranges(cluster), cluster.writes) == (list(HOME.ranges), [("PATCH", "services/gpu-ssh")])


def test_ranges_that_the_controller_has_not_carried_out_are_never_ok() -> None:
    cluster = with_service(OFFICE, NAME)
    report(cluster, "old", "2026-01-01T00:00:00Z")
    (finding,) = exposer(cluster, b"SSH-2.0", limit_s=-1).follow(POD, "nlb", HOME)
    assert finding.verdict is Verdict.UNKNOWN
    assert "may be open to others than 198.51.100.7/32: the controller has not confirmed" in finding.message
    cluster = with_service(OFFICE, NAME)
    report(cluster, "old", "2026-01-01T00:00:00Z")
    cluster.refuse = acting(cluster, lambda: warn_of(cluster, "new", DENIED))
    (finding,) = exposer(cluster, b"SSH-2.0").follow(POD, "nlb", HOME)
    assert (finding.verdict, DENIED in finding.message) == (Verdict.FAIL, True)


def test_a_service_of_an_older_run_without_the_clients_address_is_changed() -> None:
    cluster = with_service(OFFICE, NAME)
    annotations = cluster.items[cluster.name("Service", "gpu-ssh")]["metadata"]["annotations"]
    del annotations[f"{exposure.ANNOTATION}target-group-attributes"]
    assert "is changed" in eks_expose.plan(eks_expose.live(cluster, PLACE), OFFICE, PLACE)[0]
    cluster.refuse = named(cluster)
    exposer(cluster, b"SSH-2.0").follow(POD, "nlb", OFFICE)
    assert cluster.writes == [("PATCH", "services/gpu-ssh")]
    assert eks_expose.plan(eks_expose.live(cluster, PLACE), OFFICE, PLACE) == []


def test_another_scheme_replaces_the_load_balancer_and_the_plan_says_so() -> None:
    cluster, inside = with_service(OFFICE, NAME), Exposure(("10.0.0.0/8",))
    lines = eks_expose.plan(eks_expose.live(cluster, PLACE), inside, PLACE)
    assert "replaces the one that exists" in lines[0]
    assert "that one is removed first" in lines[1]
    cluster.refuse = named(cluster)
    (finding,) = exposer(cluster, b"SSH-2.0").follow(POD, "nlb", inside)
    assert (finding.verdict, cluster.writes) == (
        Verdict.OK,
        [("DELETE", "services/gpu-ssh"), ("POST", "services")],
    )


def test_a_service_that_is_being_removed_is_awaited_and_never_taken_for_a_load_balancer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = with_service(OFFICE, NAME)
    path = cluster.name("Service", "gpu-ssh")
    cluster.items[path]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ending = cluster.items[path]
    assert exposure.address(ending) == ""
    assert eks_expose.judge(ending, []).message == "it is being removed with its load balancer"
    assert "is made" in eks_expose.plan(ending, OFFICE, PLACE)[0]
    (finding,) = exposer(cluster, b"").follow(POD, None, None)
    assert finding.verdict is Verdict.WARN
    cluster.refuse = named(cluster)
    (finding,) = exposer(cluster, b"SSH-2.0").follow(POD, "nlb", OFFICE)
    assert (finding.verdict, cluster.writes[-1]) == (Verdict.OK, ("POST", "services"))


@pytest.mark.parametrize(
    ("at", "verdict"), [("2026-01-01T00:00:01Z", Verdict.FAIL), ("2025-12-31T23:59:59Z", Verdict.OK)]
)
def test_a_warning_after_the_last_success_is_not_ok(at: str, verdict: Verdict) -> None:
    cluster = with_service(OFFICE, NAME, {"metadata": dated("2025-12-01T00:00:00Z")})
    report(cluster, "done", "2026-01-01T00:00:00Z")
    warn_of(cluster, "warning", DENIED, at)
    (finding,) = exposer(cluster, b"").follow(POD, None, None)
    assert finding.verdict is verdict


def test_without_events_a_change_is_confirmed_only_when_it_is_older_than_events_last() -> None:
    hours = {1: Verdict.UNKNOWN, 3: Verdict.OK}
    for number, verdict in hours.items():
        at = (datetime.now(UTC) - timedelta(hours=number - 0.5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        service = {**exposure.service("gpu", OFFICE), **NAME, "metadata": dated(at)}
        assert eks_expose.judge(service, []).verdict is verdict
        assert eks_expose.judge(service, None).verdict is Verdict.UNKNOWN


def dated(at: str) -> Object:
    return {**exposure.service("gpu", OFFICE)["metadata"], "creationTimestamp": at}


def test_a_warning_of_before_the_command_does_not_end_its_wait() -> None:
    cluster, notes = with_service(OFFICE), list[str]()
    warn_of(cluster, "old", "TooManyLoadBalancers: limit", "2026-01-01T00:00:00Z")
    one = Exposer(cluster, PLACE, -1, notes.append, lambda *_: b"SSH-2.0")
    (finding,) = one.follow(POD, "nlb", OFFICE)
    assert "no address after 0 s: a quota of load balancers is used up" in finding.message
    looks: list[object] = []

    def look(note: str) -> None:
        looks.append(note)
        cluster.items[cluster.name("Service", "gpu-ssh")].update(NAME)
        report(cluster, "done")

    (finding,) = Exposer(cluster, PLACE, 60, look, lambda *_: b"SSH-2.0").follow(POD, "nlb", OFFICE)
    assert (finding.verdict, len(looks)) == (Verdict.OK, 1)


def test_a_load_balancer_that_this_machine_does_not_reach_is_unknown() -> None:
    cluster = with_service(OFFICE, NAME)
    report(cluster, "done")
    (finding,) = exposer(cluster, Unreachable("x", "no answer within 20 s"), limit_s=-1).follow(POD, "nlb", OFFICE)
    assert (finding.verdict, "no answer within 20 s" in finding.message) == (Verdict.UNKNOWN, True)
    assert "is this machine in 203.0.113.0/24?" in finding.hint


def test_a_quota_ends_the_wait_at_once_and_names_the_api_as_another_path() -> None:
    cluster = StandinNamespace()
    cluster.refuse = lambda _: warn_of(cluster, "quota", "TooManyLoadBalancers: limit")
    (finding,) = exposer(cluster, b"").follow(POD, "nlb", OFFICE)
    assert (finding.verdict, "a quota of load balancers is used up" in finding.message) == (Verdict.FAIL, True)
    assert eks_expose.MEANWHILE in finding.hint


def test_no_controller_is_named_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eks_expose, "UNTAKEN_S", -1)
    (finding,) = exposer(with_service(OFFICE), b"").follow(POD, "nlb", OFFICE)
    assert (finding.verdict, finding.hint.startswith(exposure.INSTALL)) == (Verdict.FAIL, True)


def test_without_a_choice_its_state_is_reported_and_nothing_is_written() -> None:
    cluster = with_service(OFFICE, NAME)
    report(cluster, "done")
    (finding,) = exposer(cluster, b"").follow(POD, None, None)
    assert (finding.verdict, cluster.writes) == (Verdict.OK, [])
    assert exposer(StandinNamespace(), b"").follow(POD, None, None) == []


def test_the_plan_names_ranges_and_an_unknown_cost_and_is_empty_without_a_change() -> None:
    lines = "\n".join(eks_expose.plan(None, OFFICE, PLACE))
    assert "with public addresses is made for gpu in team" in lines
    assert "open to 203.0.113.0/24" in lines
    assert "cost: UNKNOWN USD an hour" in lines
    assert "and its traffic and public addresses, beside the cluster" in lines
    inside = "\n".join(eks_expose.plan(None, Exposure(("10.0.0.0/8",)), PLACE))
    assert "and its traffic, beside the cluster" in inside
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
