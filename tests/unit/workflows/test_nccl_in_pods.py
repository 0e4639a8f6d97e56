"""Pods are asked before a run: all at the same time, and by nobody who has gone."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import python
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.ssh import Failure
from gpuctl.nccl.runners.kube.exec_transport import Pod, PodTransport
from gpuctl.workflows import nccl_in_pods

PODS = {pod.label: pod for pod in (Pod(f"lab-{n}", f"gpu-{n}", f"lab-{n}.lab.team.svc", f"uid-{n}") for n in (0, 1))}
FIRST, SECOND = PODS


def carrier() -> PodTransport:
    cluster: Any = None
    return PodTransport(cluster, PODS, "ml", {})


def test_where_one_pod_may_not_be_asked_nobody_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []

    def run(at: python.Container, program: bytes, limit_s: float, stop: Stop) -> bytes | Failure:
        if at.pod == "lab-0":
            raise Forbidden("run a program", "you may not create pods/exec")
        ended.append(stop.wait(60))
        return Failure("broken off")

    monkeypatch.setattr(python, "run", run)
    with pytest.raises(Forbidden):
        nccl_in_pods.before(carrier(), list(PODS), "", alone=False)
    assert ended in ([True], [])  # or it was never begun


def test_pods_that_give_no_answer_are_called_by_pod_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "run", lambda *_: Failure("it has no Python"))
    found = nccl_in_pods.before(carrier(), list(PODS), "", alone=True)
    assert [(one.check, one.subject, one.verdict) for one in found] == [
        (rule, pod, Verdict.UNKNOWN) for rule in ("idle", "reachable") for pod in (FIRST, SECOND)
    ]
    assert found[-1].message == "nothing is known of it: it has no Python"
    assert nccl_in_pods.layout(carrier(), list(PODS)).devices == {FIRST: None, SECOND: None}
