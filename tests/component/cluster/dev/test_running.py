"""A program that is being written, in a pod that is this machine: how it ends, and what becomes of a lost one."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.dev import program
from gpuctl.cluster.dev.decide import Cleared, Event, Exited, Leave, Lost, Started
from gpuctl.cluster.dev.program import Callbacks, Runner, ScriptRun
from gpuctl.core.errors import Unreachable
from gpuctl.domain.kube_errors import NotFound
from gpuctl.edges.kube.cluster import Cluster, Kind, Request
from gpuctl.remote import model
from tests.rig.local_pods import Pod, kill, lives, until

SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


class Api:
    """Tells which pod it is; `uid` "" where there is none, None where it does not answer."""

    def __init__(self) -> None:
        self.uid: str | None = "first"

    def kind(self, *_: str) -> Kind:
        return Kind("v1", "Pod", "pods", True)

    def path_of(self, *_: object) -> str:
        return ""

    def once(self, request: Request, _: float) -> dict[str, Any]:
        if self.uid is None:
            raise Unreachable(request.doing, "it does not answer")
        if not self.uid:
            raise NotFound(request.doing, "no such pod")
        return {"metadata": {"uid": self.uid}}


class Stage:
    """A runner, what is told of it, and the pod in which it runs."""

    def __init__(self, folder: Path, script: str, out: Callable[[bytes], object] | None = None) -> None:
        self.api, self.pod = Api(), Pod(folder / "runs")
        self.said: list[str] = []
        self.printed: list[bytes] = []
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        (folder / "train.py").write_text(script)
        wanted = ScriptRun("train.py", folder=str(folder), python=sys.executable)
        there = replace(self.pod.target, cluster=cast(Cluster, self.api))
        self.runner = Runner(there, wanted, Callbacks(out or self.printed.append, self.said.append, self.events.put))

    def next(self) -> type[Event]:
        return type(self.events.get(timeout=60))

    def begun(self) -> int:
        """Start it; its process."""
        self.runner.start()
        assert self.next() is Started
        until(lambda: self.printed, 60)
        return int(self.printed[0])

    def broken(self) -> int:
        """The same, and the connection breaks; the pod is not reached any more."""
        pid = self.begun()
        self.pod.broken = True
        kill(self.pod.processes[0].process.pid)
        return pid


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "AGAIN_S", 0.05)


def test_it_is_reported_when_it_runs_and_how_it_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "raise SystemExit(6)")
    stage.runner.start()
    assert (stage.next(), stage.next()) == (Started, Exited)
    assert stage.runner.last is not None
    assert (stage.runner.last.code, stage.runner.unsure) == (6, "")
    assert stage.said == ["train.py in here runs", "train.py in here ended with exit code 6"]


def test_where_nobody_reads_what_it_prints_it_is_ended_and_the_session_hears_of_it(tmp_path: Path) -> None:
    pids: list[int] = []

    def out(part: bytes) -> None:
        pids.append(int(part))
        raise BrokenPipeError

    stage = Stage(tmp_path, SLEEPS, out)
    stage.runner.start()
    assert [stage.next() for _ in range(4)] == [Started, Leave, Lost, Cleared]
    assert isinstance(stage.runner.broke, BrokenPipeError)
    assert (stage.runner.unsure, lives(pids[0])) == ("", False)


def test_one_that_was_lost_is_ended_once_the_pod_is_reached_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SLEEPS)
    pid = stage.broken()
    assert stage.next() is Lost
    until(lambda: "trying again" in stage.said[-1], 60)
    stage.pod.broken = False
    assert stage.next() is Cleared
    assert (stage.runner.unsure, lives(pid)) == ("", False)


def test_a_pod_that_was_replaced_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SLEEPS)
    stage.broken()
    assert stage.next() is Lost
    stage.api.uid = "second"
    assert stage.next() is Cleared
    assert stage.runner.unsure == ""


def test_where_there_is_no_pod_any_more_the_end_is_certain_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SLEEPS)
    stage.broken()
    assert stage.next() is Lost
    stage.api.uid = ""
    stage.runner.leave()
    assert stage.next() is Cleared
    assert stage.runner.unsure == ""


def test_a_pod_that_stays_away_is_given_up_when_the_user_leaves_and_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "GIVE_UP_S", 0.2)
    stage = Stage(tmp_path, SLEEPS)
    stage.broken()
    assert stage.next() is Lost
    stage.api.uid = None
    stage.runner.leave()
    assert stage.next() is Cleared
    assert stage.runner.unsure == "it does not answer"


def test_one_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "")
    stage.runner.script_run = replace(stage.runner.script_run, folder="/no/such/folder")
    stage.runner.start()
    assert stage.next() is Exited
    assert stage.runner.wrong.startswith("it cannot be started: its folder /no/such/folder")
    assert stage.runner.last is None


def test_what_could_not_be_ended_is_not_called_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> model.ProcessExit:
        return model.ProcessExit(None, 9, requested=True, left=("python3",))

    monkeypatch.setattr("gpuctl.cluster.dev.program.attached.run", run)
    stage = Stage(tmp_path, "")
    stage.runner.start()
    assert stage.next() is Exited
    assert stage.runner.unsure == "python3 could not be ended"


def test_one_that_prints_faster_than_it_is_read_is_ended_when_it_is_reported_to(tmp_path: Path) -> None:
    read: list[int] = []

    def out(part: bytes) -> None:
        read.append(len(part))
        time.sleep(0.02)  # a terminal: there is always more to read

    stage = Stage(tmp_path, "import os\nwhile True:\n    os.write(1, b'x' * 65536)", out)
    stage.runner.start()
    assert stage.next() is Started
    until(lambda: len(read) > 20, 60)
    before = len(read)
    stage.runner.end()
    assert stage.next() is Exited
    assert len(read) < before + 100  # what was under way: buffers of about 2 MiB
    assert stage.runner.last is not None
    assert stage.runner.last.requested
