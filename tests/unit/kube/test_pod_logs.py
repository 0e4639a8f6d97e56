"""The log of a container that restarts, has ended or cannot start is shown with the reason, and followed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.kube import model, pod_logs
from gpuctl.kube.selected_pod import SelectedPod

# Answers one call after the other: get-N with a list of pods, log-N with a log; the last ones stay.
STANDIN_KUBECTL = """#!/bin/sh
case "$*" in *" logs "*) kind=log ;; *) kind=get ;; esac
echo "$*" >>"$STANDIN/calls"
count=$(cat "$STANDIN/$kind-count" 2>/dev/null || echo 0)
[ ! -e "$STANDIN/$kind-$((count + 1))" ] || count=$((count + 1))
echo "$count" >"$STANDIN/$kind-count"
cat "$STANDIN/$kind-$count"
[ "$kind" = get ] || [ ! -e "$STANDIN/refusal" ] || { cat "$STANDIN/refusal" >&2; exit 1; }
"""
FORBIDDEN = 'Error from server (Forbidden): pods "p" is forbidden: User "ann" cannot get resource "pods/log"\n'
CRASHED: dict[str, Any] = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}
RUNS: dict[str, Any] = {"state": {"running": {}}, "restartCount": 5}
DONE: dict[str, Any] = {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}, "restartCount": 5}


def item(phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "main", **status}]},
    }


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the answers of a stand-in for kubectl."""
    (tmp_path / "kubectl").write_text(STANDIN_KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(tmp_path))
    monkeypatch.setattr(pod_logs, "POLL_S", 0.0)
    return tmp_path


def answers(cluster: Path, logs: list[str], *lists: list[dict[str, Any]]) -> None:
    for number, text in enumerate(logs, 1):
        (cluster / f"log-{number}").write_text(text)
    for number, items in enumerate(lists, 1):
        (cluster / f"get-{number}").write_text(json.dumps({"items": items}))


def test_a_crash_looping_container_is_followed_into_its_next_start(
    cluster: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers(cluster, ["old line\n", "new line\n"], [item(**CRASHED)], [item(**RUNS)], [item("Succeeded", **DONE)])
    messages: list[str] = []
    assert pod_logs.follow(SelectedPod("c", "d", "p"), 200, messages.append) == 0
    assert capfd.readouterr().out == "old line\nnew line\n"
    assert messages == [
        "p: main is not running: CrashLoopBackOff after 4 restarts; waiting for its next start; Ctrl-C ends",
        "p: main ended with exit code 0 (Completed)",
    ]
    logs = [call for call in (cluster / "calls").read_text().splitlines() if " logs " in call]
    assert ["--tail=200" in logs[0], "--tail=-1" in logs[1]] == [True, True]


def test_a_log_that_the_user_may_not_read_is_an_error_and_not_tried_for_ever(cluster: Path) -> None:
    answers(cluster, [""], [item(**RUNS)])
    (cluster / "refusal").write_text(FORBIDDEN)
    with pytest.raises(GpuctlError, match=r'cannot follow the log of p: .* cannot get resource "pods/log"'):
        pod_logs.follow(SelectedPod("c", "d", "p"), 200, print)


def test_a_log_whose_connection_broke_is_tried_again(cluster: Path) -> None:
    answers(cluster, [""], [item(**RUNS)], [item(**RUNS)], [item("Succeeded", **DONE)])
    (cluster / "refusal").write_text("error: http2: client connection lost\n")
    messages: list[str] = []
    pod_logs.follow(SelectedPod("c", "d", "p"), 200, messages.append)
    assert "following it again" in messages[0]


def test_a_pod_that_is_deleted_ends_the_log(cluster: Path) -> None:
    answers(cluster, [""], [item(**CRASHED)], [])
    messages: list[str] = []
    assert pod_logs.follow(SelectedPod("c", "d", "p"), 200, messages.append) == 0
    assert messages[-1] == "p: it no longer exists"


def test_a_container_that_the_pod_does_not_have_is_refused(cluster: Path) -> None:
    answers(cluster, [""], [item(**CRASHED)])
    with pytest.raises(GpuctlError, match="it has no container sidecar"):
        pod_logs.follow(SelectedPod("c", "d", "p", "sidecar"), 200, print)


def test_a_container_that_waits_for_its_image_is_named_with_the_reason() -> None:
    pod = model.pod(item("Pending", state={"waiting": {"reason": "ImagePullBackOff"}}))
    assert pod_logs.describe_wait(pod, "") == "main is not running: ImagePullBackOff; waiting for its next start"


def test_a_container_that_waits_for_a_failing_init_container_is_reported_with_it() -> None:
    waiting = item("Pending", state={"waiting": {"reason": "PodInitializing"}})
    waiting["spec"]["initContainers"] = [{"name": "fetch"}]
    waiting["status"]["initContainerStatuses"] = [{"name": "fetch", **CRASHED}]
    pod = model.pod(waiting)
    assert pod_logs.describe_wait(pod, "").startswith(
        "main waits for the init container fetch, which is in CrashLoopBackOff after 4 restarts"
    )
    assert pod_logs.describe_wait(pod, "fetch").startswith("fetch is not running: CrashLoopBackOff")
    assert pod.status == "Init:CrashLoopBackOff"


def test_a_broken_connection_to_a_running_container_is_no_end_of_it() -> None:
    assert "following it again" in pod_logs.describe_wait(model.pod(item(**RUNS)), "main")


def test_pods_with_problems_are_those_neither_ready_nor_finished() -> None:
    ready = item(**RUNS)
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    pods = [model.pod(each) for each in (ready, item(**CRASHED), item("Succeeded", **DONE), item("Failed", **DONE))]
    assert [(pod.phase, pod.status) for pod in model.with_problems(pods)] == [
        ("Running", "CrashLoopBackOff"),
        ("Failed", "Completed"),
    ]
