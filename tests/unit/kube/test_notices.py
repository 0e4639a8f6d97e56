"""What is told of, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.kube.notices import Thresholds, node_notices, overdue_notice, rolled_out
from gpuctl.kube.notify import NoticeTracker

NONE = Thresholds()


def pod(version: int = 1, phase: str = "Running", **container: Any) -> dict[str, Any]:
    status = {"name": "main", "restartCount": 0, "state": {"running": {}}, **container}
    meta = {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": str(version)}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"containers": [{"name": "main"}]}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase, "containerStatuses": [status]}}


def deployment(
    version: int, generation: int, ready: int, observed: int | None = None, desired: int = 2
) -> dict[str, Any]:
    status = {"observedGeneration": observed or generation, "replicas": desired, "updatedReplicas": ready}
    meta = {"name": "web", "namespace": "d", "uid": "w", "generation": generation, "resourceVersion": str(version)}
    return {
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"replicas": desired},
        "status": {**status, "readyReplicas": ready},
    }


def notices_for(*objects: dict[str, Any], at: Thresholds = NONE, what: str = "pods") -> list[str]:
    tracker = NoticeTracker(at)
    assert tracker.apply(what, "LIST", {"items": [objects[0]]}) == []
    return [text for item in objects[1:] for text in tracker.apply(what, "MODIFIED", item)]


ENDED: dict[str, Any] = {"lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}


def test_a_crash_is_reported_with_its_reason() -> None:
    assert notices_for(pod(), pod(2, restartCount=1, **ENDED)) == ["pod d/p: main crashed (OOMKilled), restart 1"]


def test_a_crash_loop_is_reported_when_it_starts() -> None:
    looping: dict[str, Any] = {"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    before = pod(2, restartCount=1, state={"terminated": {"reason": "Error", "exitCode": 1}})
    assert notices_for(pod(1, restartCount=1), before, pod(3, **looping), pod(4, **looping)) == [
        "pod d/p: main ended with exit status 1 (Error)",
        "pod d/p: main is in CrashLoopBackOff",
    ]


def test_a_successful_job_gives_no_notice() -> None:
    done: dict[str, Any] = {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    assert notices_for(pod(), pod(2, phase="Succeeded", **done)) == []


def test_a_normal_rollout_is_no_crash_even_if_the_grace_period_was_exceeded() -> None:
    killed: dict[str, Any] = {"state": {"terminated": {"reason": "Error", "exitCode": 137}}}
    leaving = pod(2, **killed)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    failed = pod(3, phase="Failed", **killed)
    failed["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert notices_for(pod(), leaving, failed) == []


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "InvalidImageName", "CreateContainerError"])
def test_a_container_that_cannot_start_is_reported_with_the_reason(reason: str) -> None:
    assert notices_for(pod(), pod(2, state={"waiting": {"reason": reason}})) == [f"pod d/p: main is in {reason}"]


def test_an_init_container_that_crashes_is_reported() -> None:
    def waiting(version: int, **init: Any) -> dict[str, Any]:
        item = pod(version, "Pending", state={"waiting": {"reason": "PodInitializing"}})
        item["spec"]["initContainers"] = [{"name": "fetch"}]
        item["status"]["initContainerStatuses"] = [{"name": "fetch", "restartCount": 0, **init}]
        return item

    running = waiting(1, state={"running": {}})
    looping = waiting(2, restartCount=1, state={"waiting": {"reason": "CrashLoopBackOff"}}, **ENDED)
    assert notices_for(running, looping) == [
        "pod d/p: fetch crashed (OOMKilled), restart 1",
        "pod d/p: fetch is in CrashLoopBackOff",
    ]
    done = waiting(2, state={"terminated": {"reason": "Completed", "exitCode": 0}})
    assert notices_for(running, done) == []


def test_an_evicted_pod_is_reported() -> None:
    assert notices_for(pod(), pod(2, phase="Failed")) == ["pod d/p: failed (Failed)"]


def test_a_crash_before_the_watch_started_gives_no_notice() -> None:
    assert NoticeTracker(NONE).apply("pods", "LIST", {"items": [pod(restartCount=9)]}) == []


def test_changes_while_the_watch_was_broken_are_reported() -> None:
    tracker = NoticeTracker(NONE)
    tracker.apply("pods", "LIST", {"items": [pod()]})
    assert len(tracker.apply("pods", "LIST", {"items": [pod(5, restartCount=2)]})) == 1


def test_a_pod_that_was_created_and_failed_while_the_watch_was_broken_is_reported() -> None:
    tracker = NoticeTracker(NONE)
    assert tracker.apply("pods", "LIST", {"items": []}) == []
    stuck = pod(2, "Pending", state={"waiting": {"reason": "ErrImageNeverPull"}})
    assert tracker.apply("pods", "LIST", {"items": [stuck]}) == ["pod d/p: main is in ErrImageNeverPull"]
    assert tracker.apply("pods", "ADDED", stuck) == []
    fresh = pod(3, "Pending")
    fresh["metadata"]["uid"], fresh["status"] = "v", {"phase": "Pending"}
    assert tracker.apply("pods", "ADDED", fresh) == []


def test_a_container_that_completed_and_is_started_again_did_not_crash() -> None:
    done: dict[str, Any] = {"lastState": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    assert notices_for(pod(), pod(2, restartCount=1, **done)) == ["pod d/p: main ended (Completed), restart 1"]


def test_an_older_event_after_a_list_gives_no_notice() -> None:
    assert notices_for(pod(9, restartCount=2), pod(5, restartCount=1), pod(9, restartCount=2)) == []


def test_an_exceeded_threshold_is_reported_once() -> None:
    objects = notices_for(pod(1), pod(2, restartCount=3), pod(3, restartCount=4), at=Thresholds(restarts=3))
    assert [text for text in objects if "threshold" in text] == [
        "pod d/p: main has restarted 3 times, the threshold is 3"
    ]


def test_a_pod_is_overdue_after_its_threshold() -> None:
    created = 1767225600.0
    waiting = pod(phase="Pending")
    assert overdue_notice(waiting, Thresholds(pending=60), created + 59) == ""
    assert overdue_notice(waiting, Thresholds(pending=60), created + 61).endswith(
        "pending for 61 s, the threshold is 60 s"
    )
    assert overdue_notice(pod(), Thresholds(pending=60), created + 61) == ""


def test_a_rollout_is_complete_when_every_pod_is_new_and_ready() -> None:
    assert rolled_out(deployment(1, 2, ready=2))
    assert not rolled_out(deployment(1, 2, ready=1))
    assert not rolled_out(deployment(1, 2, ready=2, observed=1))


def test_a_finished_rollout_is_reported_once() -> None:
    steps = (deployment(1, 1, 2), deployment(2, 2, 1), deployment(3, 2, 2), deployment(4, 2, 2))
    assert notices_for(*steps, what="deployments") == ["deployment d/web: rolled out, 2 ready"]


def test_a_pod_that_becomes_ready_again_is_not_a_rollout() -> None:
    steps = (deployment(1, 1, 2), deployment(2, 1, 1), deployment(3, 1, 2))
    assert notices_for(*steps, what="deployments") == []


def unready(version: int, status: str = "False") -> dict[str, Any]:
    objects = pod(version)
    since = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:10:00Z"}
    return {**objects, "status": {**objects["status"], "conditions": [since]}}


def test_a_pod_not_ready_for_too_long_is_reported_once_until_it_recovers() -> None:
    since, at = 1767226200.0, Thresholds(not_ready=30)
    assert overdue_notice(unready(1), at, since + 29) == ""
    tracker = NoticeTracker(at)
    tracker.apply("pods", "LIST", {"items": [unready(1)]})
    assert tracker.overdue(since + 31) == ["pod d/p: not ready for 31 s, the threshold is 30 s"]
    assert tracker.overdue(since + 32) == []
    tracker.apply("pods", "MODIFIED", unready(2, "True"))
    assert tracker.overdue(since + 33) == []
    tracker.apply("pods", "MODIFIED", unready(3))
    assert len(tracker.overdue(since + 34)) == 1


def node(status: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown"}
    return {"kind": "Node", "metadata": {"name": "gpu-0"}, "status": {"conditions": [ready]}}


def test_a_node_that_becomes_not_ready_and_ready_is_reported() -> None:
    assert node_notices(node("True"), node("Unknown")) == ["node gpu-0: not ready (NodeStatusUnknown)"]
    assert node_notices(node("Unknown"), node("False")) == []
    assert node_notices(node("False"), node("True")) == ["node gpu-0: ready again"]
    assert node_notices(None, node("False")) == []
