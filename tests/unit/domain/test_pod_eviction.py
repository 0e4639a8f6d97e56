"""Which pods a drain leaves, and which would be lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuctl.domain import kube_errors, pod_eviction

MEMORY = [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "config", "configMap": {"name": "x"}}]
DISK = [{"name": "scratch", "emptyDir": {}}]


def pod(kind: str = "", volumes: Any = (), phase: str = "Running", **annotations: str) -> dict[str, Any]:
    owners = [{"kind": kind, "name": "x", "uid": "1", "controller": True}] if kind else []
    meta = {"name": "web-1", "namespace": "team-a", "ownerReferences": owners, "annotations": annotations}
    return {"metadata": meta, "spec": {"volumes": list(volumes)}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("one", "stays"),
    [
        (pod("DaemonSet", DISK), True),
        (pod(**{pod_eviction.MIRROR: "abc"}), True),
        (pod("Job", phase="Succeeded"), True),
        (pod("ReplicaSet"), False),
        (pod(), False),
    ],
)
def test_daemons_static_pods_and_those_that_are_over_stay(one: dict[str, Any], stays: bool) -> None:
    assert pod_eviction.stays(one) is stays


@pytest.mark.parametrize(
    ("one", "consent", "text"),
    [
        (pod("ReplicaSet", MEMORY), {}, ""),
        (pod(), {}, "pod team-a/web-1 has no controller, and would not come back: --bare-pods evicts it"),
        (pod(), {"bare_pods": True}, ""),
        (
            pod("Job", DISK),
            {"bare_pods": True},
            "pod team-a/web-1 would lose the emptyDir volume scratch: --delete-emptydir-data evicts it",
        ),
        (pod("Job", DISK), {"emptydir_data": True}, ""),
    ],
)
def test_pods_that_would_be_lost_need_consent(one: dict[str, Any], consent: dict[str, bool], text: str) -> None:
    assert pod_eviction.loss(one, **{"bare_pods": False, "emptydir_data": False, **consent}) == text


CAUSE = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}
BUDGET = {
    "kind": "Status",
    "reason": "TooManyRequests",
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {"causes": [CAUSE]},
}


def test_a_budget_that_forbids_an_eviction_is_no_overload_of_the_server() -> None:
    error = kube_errors.error_of("evict Pod web-1", 429, json.dumps(BUDGET))
    assert isinstance(error, kube_errors.BudgetForbids)
    assert error.wrong == "The disruption budget web needs 2 healthy pods and has 2 currently"
    busy = kube_errors.error_of("list pods", 429, '{"kind":"Status","message":"too many requests"}')
    assert not isinstance(busy, kube_errors.BudgetForbids)
