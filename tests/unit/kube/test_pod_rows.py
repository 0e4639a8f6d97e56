"""Rows of pods: what the API reports becomes status, GPUs, age and the reason for a fault."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.kube.pod_rows import PodRow, row, rows, summary

NOW = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def pod(name: str, phase: str | None = "Running", gpus: int = 0, node: str = "gpu-1", **status: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]} if phase == "Running" else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "train", "uid": name, "creationTimestamp": "2026-01-02T02:58:00Z"},
        "spec": {"containers": [{"name": "main", "resources": limits}], "nodeName": node},
        "status": {"phase": phase, **ready, **status},
    }


NO_ROOM = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient gpu."}
WAITS = {"name": "main", "restartCount": 0, "image": "x:1", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
PLACED = {"type": "PodScheduled", "status": "True"}
CREATES = {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
CRASHES = {
    "name": "main",
    "restartCount": 7,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-02T02:59:00Z"}},
}


@pytest.mark.parametrize(
    ("made", "status", "verdict", "why"),
    [
        (pod("a"), "Running", Verdict.OK, ""),
        (pod("a", "Succeeded"), "Succeeded", Verdict.OK, ""),
        (pod("a", "Pending", node="", conditions=[NO_ROOM]), "Pending", Verdict.FAIL, "no node takes it: 0/2 nodes"),
        (pod("a", "Pending", node=""), "Pending", Verdict.UNKNOWN, "the scheduler gives no reason"),
        (pod("a", "Pending", containerStatuses=[WAITS]), "ImagePullBackOff", Verdict.FAIL, "cannot be pulled"),
        (pod("a", containerStatuses=[CRASHES]), "CrashLoopBackOff", Verdict.FAIL, "main ran out of memory (OOMKilled)"),
        (pod("a", "Failed", reason="Evicted", message="disk"), "Failed", Verdict.FAIL, "terminated (Evicted): disk"),
        (
            pod("a", "Failed"),
            "Failed",
            Verdict.FAIL,
            "its status has no reason; events: `gpuctl kube pods a --namespace train`",
        ),
        (
            pod("a", "Pending", conditions=[PLACED], containerStatuses=[CREATES], startTime="2026-01-01T02:00:00Z"),
            "ContainerCreating",
            Verdict.WARN,
            "not started for 25 h; events: `gpuctl kube pods a --namespace train`",
        ),
        (
            pod("a", "Pending", conditions=[PLACED], startTime="2026-01-02T02:59:40Z"),
            "Pending",
            Verdict.WARN,
            "it is starting, since 20 s",
        ),
        (
            pod("a", "Pending"),
            "Pending",
            Verdict.UNKNOWN,
            "it has not started, and its status does not have the reason",
        ),
        (pod("a", "Unknown"), "Unknown", Verdict.UNKNOWN, "its phase is Unknown"),
        (pod("a", None), "None", Verdict.UNKNOWN, "its phase is not reported"),
    ],
)
def test_status_and_the_reason_for_a_fault(made: dict[str, Any], status: str, verdict: Verdict, why: str) -> None:
    one = row(made, NOW)
    assert (one.status, one.verdict) == (status, verdict) if status != "None" else one.verdict is verdict
    assert why in one.why


def test_the_worst_come_first_then_those_with_gpus() -> None:
    pods = [pod("b"), pod("c", gpus=8), pod("a"), pod("d", "Pending", 4, node="", conditions=[NO_ROOM])]
    made = rows(pods, NOW)
    assert [one.name for one in made] == ["d", "c", "a", "b"]
    assert [one.gpus for one in made] == [4, 8, 0, 0]
    assert {one.age_s for one in made} == {120.0}


def test_one_that_does_not_start_and_one_that_failed_come_before_those_that_run() -> None:
    late = pod("late", "Pending", conditions=[PLACED], startTime="2026-01-01T02:00:00Z")
    made = rows([pod("runs", gpus=8), late, pod("failed", "Failed")], NOW)
    assert [one.name for one in made] == ["failed", "late", "runs"]


def test_the_summary_counts_gpus_of_live_pods_only() -> None:
    pods = [pod("c", gpus=8), pod("done", "Succeeded", 8), pod("d", "Pending", 4, node="", conditions=[NO_ROOM])]
    assert summary(rows(pods, NOW)) == "3 pods, 1 FAIL, 8 GPUs on nodes, 4 GPUs waiting for a node"


def test_an_unknown_age_is_none() -> None:
    made = pod("a")
    del made["metadata"]["creationTimestamp"]
    one: PodRow = row(made, NOW)
    assert one.age_s is None
    assert one.as_dict()["age_s"] is None
