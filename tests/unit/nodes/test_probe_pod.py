"""Pods that ask a node: what they may do, how long they live, and why one does not run."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.nodes import api_view, probe_pod
from gpuctl.nodes.judge import judge
from gpuctl.nodes.model import Node, SchedulerUse, User


def test_a_probe_has_no_token_runs_on_its_node_alone_and_ends_by_itself() -> None:
    spec = probe_pod.manifest("p", "gpu-1", "busybox", "run", 120)["spec"]
    assert (spec["nodeName"], spec["hostPID"], spec["activeDeadlineSeconds"]) == ("gpu-1", True, 120)
    assert spec["hostNetwork"] is True
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Pending"}, ""),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        ({"containerStatuses": [{"state": {"running": {}}}]}, ""),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]},
            "ErrImagePull: not found",
        ),
        ({"phase": "Failed", "reason": "OutOfpods", "message": "Node has no room"}, "Node has no room"),
        ({"phase": "Succeeded"}, "it is Succeeded"),
    ],
)
def test_why_a_probe_does_not_run(status: dict[str, Any], why: str) -> None:
    assert probe_pod.failure({"status": status}) == why


def test_a_node_that_was_asked_keeps_its_type_and_the_controllers_of_its_pods() -> None:
    by_api = User("pod", "team-a/web-x", details={"pod_uid": "u1", "owners": "Deployment web"}, gpu_count=1)
    shown = Node("n", "p5.48xlarge", users=(by_api,), total=8, scheduler=SchedulerUse(1))
    asked = Node("n", "H100", users=(User("pod", "pod u1", details={"pod_uid": "u1"}),), total=8)
    one = api_view.completed(asked, shown)
    assert (one.type, one.scheduler) == ("p5.48xlarge", None)
    assert (one.users[0].who, one.users[0].details["owners"]) == ("team-a/web-x", "Deployment web")


def test_a_node_that_did_not_answer_keeps_what_the_api_has() -> None:
    one = api_view.unanswered(Node("n", total=8, scheduler=SchedulerUse(1)), "ErrImagePull")
    assert not one.reached
    assert [finding.check for finding in judge(one)] == ["reachable", "use"]
