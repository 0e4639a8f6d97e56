"""Programs in pods: how they are fed and ended by an input that stays open, and what a way that breaks comes to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.core.errors import Unreachable
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import pod_exec, python
from gpuctl.edges.ssh import Failure
from gpuctl.nccl.model import Launch, Outcome, Sweep
from gpuctl.nccl.runners.kube.exec_transport import Pod, PodTransport, pod_options
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.remote import payload

MARK = "marked "
PODS = {pod.label: pod for pod in (Pod(f"lab-{n}", f"gpu-{n}", f"lab-{n}.lab.team.svc", f"uid-{n}") for n in (0, 1))}
NODES = tuple(PODS)


def in_a_container(name: str, request: dict[str, Any], **env: str) -> subprocess.Popen[bytes]:
    """A program as exec would run it there, with an input that stays open."""
    text = payload.program(name, {"mark": MARK, **request})
    running = subprocess.Popen(python.command(text).argv, stdin=-1, stdout=-1, env={**os.environ, **env}, bufsize=0)
    assert running.stdin is not None
    running.stdin.write(text)
    return running


def started(*argv: str, **more: Any) -> dict[str, Any]:
    return {"argv": list(argv), "env": {}, "program": "sh", "folders": [], "usual": [], "stop_on_input": True, **more}


def said(running: subprocess.Popen[bytes]) -> tuple[str, Mapping[str, Any] | Failure]:
    assert running.stdout is not None
    text = running.stdout.read()
    running.wait(60)
    return text.decode().partition("\n" + MARK)[0], payload.answer(text, MARK, Mapping[str, object])


def test_a_program_ends_by_itself_while_its_input_is_open() -> None:
    running = in_a_container("start", started("env", "{program}", "-c", "echo well; exit 3"))
    assert said(running) == ("well\n", {"code": 3})


@pytest.mark.parametrize("word", [b"\n", b""])
def test_it_is_ended_by_a_word_and_by_the_end_of_its_input(word: bytes) -> None:
    running = in_a_container("start", started("env", "{program}", "-c", "echo begun; exec sleep 100"))
    assert running.stdin is not None
    assert running.stdout is not None
    assert running.stdout.read(6) == b"begun\n"
    running.stdin.write(word)
    if not word:
        running.stdin.close()
    assert said(running)[1] == {"signal": 15}


def test_ranks_get_what_the_container_says_of_the_network_and_what_was_asked_for_wins(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text('#!/bin/sh\necho "$@" $NCCL_DEBUG\n')
    program.chmod(0o755)
    request = started("mpirun", "-n", "2", folders=[str(tmp_path)], passed=["NCCL_", "FI_"])
    request["env"] = {"NCCL_DEBUG": "INFO"}
    own = {"NCCL_IB_HCA": "=mlx5_2", "FI_PROVIDER": "efa", "NCCL_DEBUG": "WARN", "NCCLX": "1"}
    text, _ = said(in_a_container("start", request, **own))
    assert text == "-x FI_PROVIDER -x NCCL_IB_HCA -n 2 INFO\n"


def test_who_is_at_work_is_told_with_what_cannot_be_seen() -> None:
    told = said(in_a_container("gpu_processes", {}))[1]
    assert not isinstance(told, Failure)
    assert set(told) == {"processes", "hidden"}


def test_a_container_without_python_is_said(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    argv = python.command(b"").argv
    done = subprocess.run(argv, capture_output=True, env={"PATH": str(tmp_path)}, text=True, check=False)
    if done.returncode:  # this machine may have one at a fixed place
        assert python.explain(done.returncode, done.stderr) == Failure("it has no Python", "use an image with python3")
    assert python.explain(1, "Traceback\nKeyError: 'x'\n").wrong == "KeyError: 'x'"


def in_pods(cluster: Any) -> PodTransport:
    return PodTransport(cluster, PODS, "ml", {"app": "lab"})


class Objects:
    """A cluster with these pods."""

    def __init__(self, *pods: tuple[str, str, str]) -> None:
        self.pods = pods

    def kind(self, _: str, name: str) -> str:
        return name

    def find(self, kind: str, labels: dict[str, str]) -> list[dict[str, Any]]:
        assert (kind, labels) == ("Pod", {"app": "lab"})
        return [{"metadata": {"name": n, "uid": uid}, "spec": {"nodeName": node}} for n, uid, node in self.pods]


FIRST = ("lab-0", "uid-0", "gpu-0")


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ([("lab-1", "uid-1", "gpu-1")], ""),
        ([("lab-1", "uid-9", "gpu-7")], "lab-1 on gpu-1: another pod has its name now, on gpu-7"),
        ([], "lab-1 on gpu-1: the pod is deleted or being deleted"),
    ],
)
def test_a_pod_that_was_replaced_says_nothing_of_the_node_that_it_was_on(second: list[Any], why: str) -> None:
    carrier = in_pods(Objects(FIRST, *second))
    started = carrier.start(NODES[0], b"")
    assert carrier.inconclusive(NODES, started, ranks_reported=True) == why
    assert carrier.inconclusive(NODES[:1], started, ranks_reported=True) == ""


@pytest.mark.parametrize(("looked", "unknown"), [(False, "the connection broke before it ended"), (True, "")])
def test_a_way_that_broke_says_nothing_of_nodes_that_told_nothing_by_another(looked: bool, unknown: str) -> None:
    carrier = in_pods(Objects(FIRST, ("lab-1", "uid-1", "gpu-1")))
    started = carrier.start(NODES[0], b"")
    started.wrong = Unreachable("run it", "the connection broke before it ended")
    assert carrier.inconclusive(NODES, started, looked) == unknown


class Exec:
    """A program in a pod that says nothing but ends when it is told to: its container was killed by then."""

    doing = "run it in the pod lab-0"

    def __init__(self, at_ping: Callable[[], None]) -> None:
        self.ping, self.told, self.closed = at_ping, list[bytes](), False

    def waiting(self, _: float) -> bool:
        return b"\n" in self.told

    def send(self, data: bytes) -> None:
        self.told.append(data)

    def read(self) -> bytes:
        return b""

    def done(self) -> pod_exec.Done:
        return pod_exec.Done(137, "")

    def close(self) -> None:
        self.closed = True


def test_a_silent_way_is_kept_open_and_an_end_from_outside_is_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    started = in_pods(Objects()).start(NODES[0], b"text")
    program = Exec(at_ping=started.end)
    monkeypatch.setattr(python, "PING_S", 0.0)
    monkeypatch.setattr(pod_exec, "start", lambda *_: program)
    assert list(started.lines()) == []
    assert program.told == [b"text", b"\n"]
    why = "our program in the pod lab-0 was ended from outside (exit code 137)"
    assert started.wait() == (python.LOST, why)
    assert isinstance(started.wrong, Unreachable)
    assert program.closed


@pytest.fixture
def away(tmp_path: Path) -> kube.Cluster:
    """A cluster that does not answer."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "away",
        "clusters": [{"name": "away", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "away", "context": {"cluster": "away", "user": "me"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return kube.connect(files=[path], patience_s=0.1)


def test_a_cluster_that_is_away_says_nothing_of_the_nodes(away: kube.Cluster) -> None:
    launch = Launch(NODES, Sweep(gpus_per_node=1, limit_s=20))
    runner = MpiRunner(in_pods(away), pod_options(MpirunOptions()))
    (ended,) = runner.run([launch], lambda _, __: None, lambda: False)
    assert ended.run.outcome is Outcome.EMPTY
    assert (ended.run.cause or "").startswith("not known: ")
    assert ended.lost == launch.nodes


def test_pods_are_called_by_name_and_node_and_reach_each_other_by_their_names_in_dns(away: kube.Cluster) -> None:
    assert list(PODS) == ["lab-0 on gpu-0", "lab-1 on gpu-1"]
    runner = MpiRunner(in_pods(away), pod_options(MpirunOptions(search_path=("/opt",))))
    assert runner.hosts(Launch(NODES, Sweep())) == ["lab-0.lab.team.svc", "lab-1.lab.team.svc"]
    assert runner.options.as_root
