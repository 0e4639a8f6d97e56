"""`gpuctl kube explain`, `gpuctl kube logs-ai` and `gpuctl kube notify` against a real API."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rig.kube.kubelet import deployment, pod
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.tmux.screen import User, user, wait_until

HIDDEN = "tiger-blue-42"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        data = {"password": base64.b64encode(HIDDEN.encode()).decode()}
        started.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": data})
        started.apply(leaky(), deployment("web", 1))
        started.pods_ready(2)
        crash(started, "leaky", 3)
        yield started


def leaky() -> dict[str, Any]:
    """A pod whose logs and variables tell what they should not."""
    previous = ("CUDA error: out of memory", "https://bob:hunter2@example.org/data", f"logged in with {HIDDEN}", "")
    logs = {
        "standin/log": f"starting\nlogin as app with {HIDDEN} failed\nAuthorization: Bearer abcdef0123456789\n",
        "standin/previous-log": "\n".join(previous),
    }
    found = pod("leaky", "trainer", **logs)
    reference = {"valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
    env = [{"name": "DB_PASSWORD", **reference}, {"name": "API_TOKEN", "value": "plain-token-77"}]
    found["spec"]["containers"][0]["env"] = env
    return found


def crash(cluster: Plane, name: str, restarts: int) -> None:
    """What a kubelet says of a pod whose container crashed."""
    now = json.loads(cluster.kubectl("get", "pod", name, "-o", "json"))["status"]["containerStatuses"][0]
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}, "running": None}
    told = {**now, "restartCount": restarts, "ready": False, "lastState": ended, "state": waiting}
    cluster.status(name, {"containerStatuses": [told]})


@pytest.fixture
def me(tmp_path: Path, cluster: Plane) -> Iterator[User]:
    with user(tmp_path) as found:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube/config").write_text(json.dumps(cluster.context("dev-eu")))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/kubectl").symlink_to(cluster.kubectl_program)
        yield found


def test_an_explanation_has_everything_but_the_secrets(me: User) -> None:
    done = me.gpuctl("kube", "explain", "leaky")
    assert done.returncode == 0, done.stderr
    for wanted in (
        "Name:",
        "CrashLoopBackOff",
        "OOMKilled",
        "starting",
        "login as app with",
        "CUDA error: out of memory",
    ):
        assert wanted in done.stdout
    for secret in (HIDDEN, base64.b64encode(HIDDEN.encode()).decode(), "plain-token-77", "abcdef0123456789", "hunter2"):
        assert secret not in done.stdout
    assert "secrets removed" in done.stderr


def test_what_could_not_be_looked_for_is_said(me: User, cluster: Plane) -> None:
    found = pod("lost")
    found["spec"]["imagePullSecrets"] = [{"name": "registry-login"}]
    cluster.apply(found)
    done = me.gpuctl("kube", "explain", "lost")
    assert done.returncode == 0, done.stderr
    assert "could not be read" in done.stderr
    assert "registry-login" in done.stderr


def test_a_log_that_cannot_be_read_is_unknown(me: User, cluster: Plane) -> None:
    cluster.apply(pod("quiet"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/quiet", "--timeout=30s")
    assert "(unknown: " in me.gpuctl("kube", "explain", "quiet").stdout


def test_it_is_handed_once_to_the_command_of_the_settings(me: User) -> None:
    me.program("oracle", '#!/bin/sh\necho "asked with $*"\ncat > "$HOME/question"\n')
    me.settings("ask: [oracle, -p]\n")
    done = me.gpuctl("kube", "explain", "leaky", "--ask", "--yes")
    assert (done.returncode, "asked with -p" in done.stdout) == (0, True), done.stderr
    question = (me.home / "question").read_text()
    assert "CrashLoopBackOff" in question
    assert HIDDEN not in question


def test_nothing_is_sent_where_the_user_does_not_agree(me: User) -> None:
    me.program("oracle", '#!/bin/sh\ncat > "$HOME/question"\n')
    me.settings("ask: [oracle]\n")
    at = me.terminal(columns=160, rows=100)
    at.type("gpuctl kube explain leaky --ask; echo ended with $?")
    at.sees("Send this to `oracle`?")
    at.type("n")
    at.sees("ended with 130")
    assert not (me.home / "question").exists()


def test_logs_go_to_an_ai_in_one_shot_as_shown(me: User) -> None:
    me.program("oracle", '#!/bin/sh\ncat > "$HOME/question"\necho "it is the memory"\necho "a warning" >&2\n')
    me.settings("ask: [oracle]\n")
    done = me.gpuctl("kube", "logs-ai", "-l", "app=leaky", "--send", "--yes")
    question = (me.home / "question").read_text()
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{question}\n=== answer of oracle ===\nit is the memory\n"
    for wanted in (
        "trainer ran out of memory (OOMKilled)",
        ">>> CUDA error: out of memory",
        "Scheduled",
        "=== node gpu-",
    ):
        assert wanted in question
    for secret in (HIDDEN, base64.b64encode(HIDDEN.encode()).decode(), "plain-token-77", "abcdef0123456789", "hunter2"):
        assert secret not in question
    assert "a warning" in done.stderr
    assert "2 secrets removed" in done.stderr


def test_ctrl_c_ends_the_program_that_was_asked(me: User) -> None:
    me.program("oracle", '#!/bin/sh\ncat >/dev/null\necho "thinking as $$"\nexec sleep 600\n')
    at = me.terminal(columns=160, rows=100)
    at.type("gpuctl kube logs-ai leaky --program oracle; echo ended with $?")
    at.sees("Send this to `oracle`?")
    at.type("y")
    at.sees("thinking as ")
    pid = int(at.text.rpartition("thinking as ")[2].split()[0])
    at.press("C-c")
    at.sees("ended with 130")
    assert not Path(f"/proc/{pid}").exists()


def test_a_pod_that_is_not_there_is_said(me: User) -> None:
    done = me.gpuctl("kube", "explain", "nobody")
    assert done.returncode == 3
    assert 'pods "nobody" not found' in done.stderr


@contextmanager
def notified(me: User, *words: str, watched: int = 4) -> Iterator[Path]:
    output = me.home / "notices"
    with output.open("w") as stream:
        argv = [str(me.program_path), "kube", "notify", *words]
        running = subprocess.Popen(argv, env=me.environment, stdin=-3, stdout=stream, stderr=stream)
        try:
            wait_until(lambda: watches(running.pid) == watched, "every watch runs")
            wait_until(lambda: settled(running.pid, watched), "the lists were read")
            yield output
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(20) == 130
    wait_until(lambda: watches(running.pid) == 0, "every watch has ended", 5)


def children(pid: int) -> list[str]:
    argv = ["ps", "-ww", "-o", "args=", "--ppid", str(pid)]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()


def watches(pid: int) -> int:
    return len([line for line in children(pid) if "watch=1" in line])


def settled(pid: int, watched: int = 4) -> bool:
    return watches(pid) == len(children(pid)) == watched


def test_crashes_and_thresholds_are_told_as_they_happen(me: User, cluster: Plane) -> None:
    cluster.apply(pod("crasher"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/crasher", "--timeout=30s")
    with notified(me, "--restarts", "5") as output:
        crash(cluster, "crasher", 1)
        wait_until(lambda: "pod default/crasher: main crashed (OOMKilled), restart 1" in output.read_text(), "a crash")
        wait_until(lambda: "pod default/crasher: main is in CrashLoopBackOff" in output.read_text(), "the loop")
        crash(cluster, "crasher", 5)
        wait_until(lambda: "has restarted 5 times, the threshold is 5" in output.read_text(), "the threshold")
    assert "leaky" not in output.read_text()  # it crashed before anybody watched


def test_a_finished_roll_out_is_told_once(me: User, cluster: Plane) -> None:
    with notified(me) as output:
        cluster.kubectl("set", "image", "deployment/web", "main=example/main:2")
        wait_until(lambda: "deployment default/web: rolled out, 1 ready" in output.read_text(), "the roll-out")
        cluster.kubectl("delete", "pod", "-l", "app=web", "--wait=false")
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert output.read_text().count("rolled out") == 1


def test_a_pod_that_stays_pending_is_told(me: User, cluster: Plane) -> None:
    with notified(me, "--pending", "2") as output:
        cluster.apply(pod("stuck", **{"standin/pending": "yes"}))
        wait_until(lambda: "pod default/stuck: pending for" in output.read_text(), "the pending pod")
    assert output.read_text().count("stuck") == 1
    cluster.kubectl("delete", "pod", "stuck", "--wait=false")


def test_a_node_that_is_ready_no_more_is_told(me: User, cluster: Plane) -> None:
    with notified(me, "--nodes", watched=5) as output:
        ready(cluster, "Unknown")
        wait_until(lambda: "node gpu-1: not ready (StandIn)" in output.read_text(), "the node is told")
        ready(cluster, "True")
        wait_until(lambda: "node gpu-1: ready again" in output.read_text(), "it is told again")


def ready(cluster: Plane, status: str) -> None:
    """What the node gpu-1 says of itself."""
    told = [{"type": "Ready", "status": status, "reason": "StandIn", "message": ""}]
    cluster.api("PATCH", "/api/v1/nodes/gpu-1/status", {"status": {"conditions": told}})


def test_inside_tmux_a_notice_stands_in_the_status_line(me: User, cluster: Plane) -> None:
    cluster.apply(pod("louder"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/louder", "--timeout=30s")
    at = me.terminal("tmux", "-f", "/dev/null", "new-session", "-s", "main", str(me.program_path), "kube", "notify")
    at.sees("[main]")
    pane = int(me.tmux("list-panes", "-F", "#{pane_pid}"))
    wait_until(lambda: settled(pane), "every watch runs")
    crash(cluster, "louder", 1)
    wait_until(lambda: "pod default/louder: main" in at.status_bar, "the status line shows it")
    assert "pod default/louder: main crashed (OOMKilled), restart 1" in at.text
    at.press("C-c")


def test_a_cluster_that_does_not_answer_is_told_and_tried_again(me: User, cluster: Plane) -> None:
    known = cluster.context("dev-eu")
    known["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (me.home / ".kube/config").write_text(json.dumps(known))
    running = subprocess.Popen(
        [str(me.program_path), "kube", "notify"], env=me.environment, stdin=-3, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        assert "cannot watch" in running.stdout.readline()
        assert running.poll() is None
    finally:
        running.terminate()
        running.communicate(timeout=20)
