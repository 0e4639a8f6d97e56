"""Detached programs: they keep running, are followed again from an offset, and are ended with all processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from gpuctl.remote import detached, packing
from gpuctl.remote.connection import Refused
from gpuctl.remote.detached import Follower
from gpuctl.remote.model import Program
from gpuctl.remote.supervisor import log
from tests.rig.local_pods import Pod, kill, later, lives, python, until

NEVER = threading.Event()
SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "runs")


def begin(pod: Pod, program: Program, name: str = "one") -> Program:
    detached.start(pod.target, program, detached.Label(name, "ann@desk", "train.py"))
    return program


def heard(pod: Pod, name: str = "one", offset: int = 0) -> tuple[str, detached.Run]:
    said: list[bytes] = []
    run = Follower(pod.target, name, said.append, offset=offset).follow(NEVER)
    assert run
    return b"".join(said).decode(), run


def pid_of(pod: Pod, name: str = "one") -> int:
    said: list[bytes] = []
    enough = threading.Event()

    def out(data: bytes) -> None:
        said.append(data)
        if data.endswith(b"\n"):
            enough.set()

    Follower(pod.target, name, out).follow(enough)
    return int(b"".join(said))


def test_a_detached_program_continues_and_is_followed_from_the_last_offset(pod: Pod) -> None:
    begin(pod, python("print('one'); print('two')"))
    whole, run = heard(pod)
    assert (whole, run.exit and run.exit.code, run.running, run.actor) == ("one\ntwo\n", 0, False, "ann@desk")
    assert heard(pod, offset=4)[0] == "two\n"


def test_a_detached_program_survives_its_follower_until_it_is_stopped(pod: Pod) -> None:
    begin(pod, python(SLEEPS))
    pid = pid_of(pod)
    assert lives(pid)
    [run] = detached.list_runs(pod.target)
    assert (run.running, run.exit) == (True, None)
    ended = detached.stop(pod.target, "one")
    assert (ended.signal, ended.requested, ended.left) == (signal.SIGTERM, True, ())
    assert not lives(pid)
    assert detached.stop(pod.target, "one") == ended


def test_a_second_detached_program_is_refused_with_the_owner_of_the_first(pod: Pod) -> None:
    begin(pod, python(SLEEPS))
    with pytest.raises(Refused, match=r"train\.py of ann@desk is running there") as caught:
        begin(pod, python("print(2)"), "two")
    assert caught.value.reason == "busy"
    detached.stop(pod.target, "one")
    begin(pod, python("print(2)"), "two")
    assert heard(pod, "two")[0] == "2\n"


def test_a_program_that_cannot_start_leaves_nothing(pod: Pod) -> None:
    with pytest.raises(Refused, match="gpuctl-no-such: No such file"):
        begin(pod, Program(["gpuctl-no-such"]))
    assert detached.list_runs(pod.target) == []


def test_no_program_starts_in_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pod = Pod(tmp_path / "file")
    with pytest.raises(Refused, match=r"file/one cannot be written: (File exists|Not a directory)"):
        begin(pod, python(f"open({str(tmp_path / 'ran')!r}, 'w')"))
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_at_the_start_is_reported_and_nothing_runs(tmp_path: Path, pod: Pod) -> None:
    """As a disk that takes folders, and no file."""
    full = packing.STARTER.replace(
        "sys.exit(module.main())",
        "import pathlib\n"
        "def fails(*_):\n"
        "    raise OSError(28, 'No space left on device')\n"
        "pathlib.Path.write_text = fails\n"
        "sys.exit(module.main())",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "STARTER", full)
        with pytest.raises(Refused, match="one cannot be written: No space left on device"):
            begin(pod, python(f"open({str(tmp_path / 'ran')!r}, 'w')"))
    assert not (tmp_path / "ran").exists()
    begin(pod, python("print(2)"), "two")
    assert heard(pod, "two")[0] == "2\n"


def test_a_killed_supervisor_ends_its_program_and_the_run_is_lost(pod: Pod) -> None:
    begin(pod, python(SLEEPS))
    pid = pid_of(pod)
    kill(json.loads((Path(pod.target.runs) / "one" / "state").read_text())["supervisor"])
    until(lambda: not lives(pid))
    run = heard(pod)[1]
    assert (run.running, run.exit) == (False, None)
    assert detached.stop(pod.target, "one").description == "ended on request, its exit status is unknown"
    begin(pod, python("print(2)"), "two")
    assert heard(pod, "two")[0] == "2\n"


def test_processes_that_a_program_started_elsewhere_are_swept(pod: Pod) -> None:
    """As ssh begins it in another pod: no keeper there, only the mark."""
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    mark = uuid.uuid4().hex
    found = subprocess.Popen(words, env={"PYTHON_GPUCTL_PROGRAM": mark})
    other = subprocess.Popen(words, env={"PYTHON_GPUCTL_PROGRAM": f"{mark}-2"})
    later(0.1, found.wait)
    assert detached.sweep(pod.target, mark, 5) == []
    assert found.wait(5) == -signal.SIGTERM
    assert other.poll() is None
    other.kill()
    other.wait()


def test_marked_processes_without_a_run_are_listed_and_attached_programs_are_not(pod: Pod) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)", "their-train.py"]
    marks = [detached.token(), uuid.uuid4().hex]
    found = [subprocess.Popen(words, env={"PYTHON_GPUCTL_PROGRAM": mark}) for mark in marks]
    try:
        until(lambda: marks[0] in detached.inspect(pod.target).processes)
        known = detached.inspect(pod.target)
        assert known.processes[marks[0]].endswith("their-train.py")
        assert (known.runs, marks[1] in known.processes) == ([], False)
    finally:
        for each in found:
            each.kill()
            each.wait()


def test_an_unknown_run_is_refused(pod: Pod) -> None:
    with pytest.raises(Refused, match="the run nine no longer exists here"):
        detached.stop(pod.target, "nine")


def test_only_the_newest_runs_are_recorded(pod: Pod) -> None:
    for number in range(5):
        begin(pod, python("print(1)"), f"run-{number}")
        heard(pod, f"run-{number}")
    assert [run.name for run in detached.list_runs(pod.target)] == ["run-2", "run-3", "run-4"]


def test_a_long_log_keeps_its_newest_part_and_counts_the_rest(tmp_path: Path) -> None:
    writer = log.Writer(tmp_path, file_bytes=10)
    for number in range(10):
        writer.add(b"%05d" % number)
    assert list(log.files(tmp_path)) == [30, 40]
    assert log.read(tmp_path, 0, 100) == (30, b"0000600007")
    assert log.read(tmp_path, 43, 100) == (43, b"0800009")
    assert log.read(tmp_path, 50, 100) == (50, b"")


def test_a_full_disk_loses_output_but_no_training(tmp_path: Path) -> None:
    writer = log.Writer(tmp_path / "gone")
    writer.add(b"12345")
    assert (writer.lost, writer.size) == (5, 0)
