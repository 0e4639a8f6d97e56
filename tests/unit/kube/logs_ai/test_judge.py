"""Findings of a pod's status, node and logs."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.kube.logs_ai.judge import earliest_end, first_failure, of_records, of_status
from gpuctl.kube.logs_ai.model import Log, Records

OOM = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:10:00Z"}
TRACEBACK = ("step 1", "Traceback (most recent call last):", '  File "t.py", line 3', "ValueError: bad", "bye")


def pod(phase: str = "Running", conditions: Any = (), spec: Any = None, **status: Any) -> dict[str, Any]:
    states = [{"name": "main", "image": "a:1", **status}] if status else []
    return {
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"containers": [{"name": "main"}], **(spec or {"nodeName": "gpu-1"})},
        "status": {"phase": phase, "conditions": list(conditions), "containerStatuses": states},
    }


@pytest.mark.parametrize(
    ("status", "check", "message"),
    [
        ({"lastState": {"terminated": OOM}, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
         "memory", "main ran out of memory (OOMKilled) at 2026-01-01T00:10:00Z, restarts: 3"),
        ({"state": {"terminated": {"exitCode": 139}}}, "crash", "main was killed by signal 11 (SIGSEGV), restarts: 0"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 0}}},
         "crash", "main ended with exit code 0, restarts: 0"),
        ({"state": {"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}},
         "image", "the image a:1 of main cannot be pulled (ErrImagePull): manifest unknown"),
        ({"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}},
         "start", 'main does not start (CreateContainerConfigError): secret "x" not found'),
    ],
)  # fmt: skip
def test_a_failed_container_is_a_finding(status: dict[str, Any], check: str, message: str) -> None:
    (finding,) = of_status(pod(**status))
    assert (finding.check, finding.verdict, finding.message) == (check, Verdict.FAIL, message)
    assert finding.subject == "team/p"


def test_a_container_that_runs_again_is_a_warning() -> None:
    (finding,) = of_status(pod(state={"running": {}}, lastState={"terminated": OOM}, restartCount=1))
    assert (finding.verdict, finding.message.endswith("; it runs again")) == (Verdict.WARN, True)


@pytest.mark.parametrize("state", [{"running": {}}, {"terminated": {"exitCode": 0}}])
def test_a_healthy_or_finished_pod_has_none(state: dict[str, Any]) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    assert of_status(pod(conditions=ready, state=state)) == []


def test_a_pod_without_a_node_has_the_schedulers_reason() -> None:
    refused = [{"type": "PodScheduled", "status": "False", "message": "0/4 nodes: 4 Insufficient nvidia.com/gpu."}]
    (finding,) = of_status(pod("Pending", refused, {"containers": []}))
    assert finding.message == "no node takes it: 0/4 nodes: 4 Insufficient nvidia.com/gpu."
    (finding,) = of_status(pod("Pending", (), {"containers": []}))
    assert finding.verdict is Verdict.UNKNOWN


def test_evicted_and_unready_pods_are_findings() -> None:
    evicted = pod("Failed")
    evicted["status"] |= {"reason": "Evicted", "message": "low on ephemeral-storage"}
    assert of_status(evicted)[0].message == "it was terminated (Evicted): low on ephemeral-storage"
    unready = [{"type": "Ready", "status": "False", "message": "containers with unready status: [main]"}]
    assert [one.check for one in of_status(pod(conditions=unready, state={"running": {}}))] == ["ready"]


def test_conditions_of_the_node_are_findings() -> None:
    conditions = [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting"},
        {"type": "MemoryPressure", "status": "False"},
        {"type": "KernelDeadlock", "status": "True", "reason": "AUFSUmountHung", "message": "hung"},
    ]
    node = {"metadata": {"name": "gpu-1"}, "spec": {"unschedulable": True}, "status": {"conditions": conditions}}
    findings = of_records(Records(pod(conditions=[{"type": "Ready", "status": "True"}]), node=node))
    assert [(one.verdict, one.subject, one.message.split(" (")[0]) for one in findings] == [
        (Verdict.FAIL, "node gpu-1", "Ready is Unknown"),
        (Verdict.WARN, "node gpu-1", "KernelDeadlock is True"),
        (Verdict.WARN, "node gpu-1", "it is cordoned"),
    ]


def test_a_node_that_may_not_be_read_is_unknown() -> None:
    findings = of_records(Records(pod(conditions=[{"type": "Ready", "status": "True"}]), node_why="forbidden"))
    assert [(one.check, one.verdict) for one in findings] == [("node", Verdict.UNKNOWN)]


def test_the_first_failure_of_a_log_is_a_finding_of_its_container() -> None:
    failed = pod(state={"terminated": {"exitCode": 1}})
    findings = of_records(Records(failed, [Log("main", TRACEBACK), Log("sidecar", ("all well",))]))
    assert [(one.check, one.verdict) for one in findings] == [("crash", Verdict.FAIL), ("log", Verdict.FAIL)]
    assert findings[1].subject == "team/p, log of main"
    assert findings[1].message == "exception, line 4: ValueError: bad"


def test_a_log_without_a_known_failure_is_unknown_where_it_should_explain_one() -> None:
    failed = pod(state={"terminated": {"exitCode": 1}})
    findings = of_records(Records(failed, [Log("main", ("step 1",)), Log("side", why="timeout")]))
    assert [one.message for one in findings[1:]] == [
        "no known failure in its last 1 lines",
        "it cannot be read: timeout",
    ]
    assert of_records(Records(pod(conditions=[{"type": "Ready", "status": "True"}]), [Log("main", ("step 1",))])) == []


@pytest.mark.parametrize(
    "line", ["panic: runtime error", "time=1 level=error msg=x", "[ERROR] no route", "E0101 10:00:00.1 main.go:3] x"]
)
def test_a_line_of_another_program_that_reads_like_an_error_is_marked(line: str) -> None:
    first = first_failure(Log("main", ("0 errors so far", line)))
    assert first is not None
    assert first.line == 2


def test_the_pod_that_failed_first_comes_first() -> None:
    late = {"exitCode": 1, "finishedAt": "2026-01-01T00:11:00Z"}
    assert earliest_end(pod(state={"terminated": OOM})) < earliest_end(pod(state={"terminated": late})) < "~"
    assert earliest_end(pod(state={"running": {}})) == "~"
