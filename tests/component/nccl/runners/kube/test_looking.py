"""The scripts of the pods, run by a real shell: what they say of ranks, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.nccl.runners.kube import hang_probe, scripts
from gpuctl.nccl.runners.kube.worker_report import WorkerReport

NAME = "all_reduce_perf"
MARK = "GPUCTL_RUN=0a1b2c3d-0"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[None]:
    """One that polls, one that does nothing, one of another run."""
    program = tmp_path / NAME
    program.symlink_to("/bin/sh")
    path, polls = {"PATH": os.environ["PATH"]}, "while :; do :; done"
    started = [
        subprocess.Popen([program, "-c", script], env={**path, "GPUCTL_RUN": run, **rank}, stdin=subprocess.PIPE)
        for script, run, rank in (
            (polls, "0a1b2c3d-0", {"OMPI_COMM_WORLD_RANK": "0"}),
            ("read line", "0a1b2c3d-0", {"PMIX_RANK": "1"}),
            (polls, "another", {"OMPI_COMM_WORLD_RANK": "0"}),
        )
    ]
    time.sleep(0.3)
    yield
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("ranks")
def test_ranks_of_the_run_are_told_with_what_they_do() -> None:
    words = ["sh", "-c", hang_probe.PROGRAM, "look", "w1", MARK, NAME]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    own = WorkerReport()
    assert all(own.take(line) for line in said.stdout.splitlines())
    found = own.ranks("w1", NAME)
    assert found is not None
    assert sorted((one.rank, one.still) for one in found) == [(0, False), (1, True)]
    assert {one.state for one in found} <= {"R", "S"}


def test_a_host_that_gave_no_whole_answer_is_not_known() -> None:
    own = WorkerReport()
    assert own.take("gpuctl: look w0 0 17 R 5,1,2,3, 0")
    assert own.ranks("w0", NAME) is None
    assert own.take("gpuctl: look w1 end")
    assert own.ranks("w1", NAME) == []


def test_lines_of_the_test_are_not_ours() -> None:
    own = WorkerReport()
    assert not own.take("     8388608       2097152     float     sum      -1")
    assert not own.looked


def launcher(folder: Path, *words: str, ssh: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The launcher's script with an ssh of the test's own, which gets host and command."""
    (folder / "ssh").write_text(f"#!/bin/sh\nhost=$3\n{ssh}\n")
    (folder / "ssh").chmod(0o755)
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "GPUCTL_FOLDERS": "/nowhere", "GPUCTL_LIMIT": "60"}
    own |= {"GPUCTL_HOSTS": "w0 w1", "GPUCTL_NEEDS": "ssh sleep", "GPUCTL_MARK": MARK, "GPUCTL_TEST": NAME}
    argv = ["sh", "-c", scripts.LAUNCHER, "nccl", *words]
    with subprocess.Popen(
        argv,
        env={**own, "GPUCTL_LOOK": hang_probe.PROGRAM, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)  # as a container ends all with its first process
        out, errors = process.communicate()
    return subprocess.CompletedProcess(argv, process.returncode, out, errors)


def test_the_launcher_tells_how_much_memory_each_worker_may_lock(tmp_path: Path) -> None:
    said = launcher(tmp_path, "echo", "the test", ssh='[ "$host" = w0 ] && echo unlimited || echo 8192')
    assert said.stdout.splitlines() == ["gpuctl: memlock w0 unlimited", "gpuctl: memlock w1 8192", "the test"]
    own = WorkerReport()
    taken = [own.take(line) for line in said.stdout.splitlines()]
    assert taken == [True, True, False]
    assert own.too_little({"w0": "node-1", "w1": "node-2"}) == "node-2 (8192 KiB)"


def test_at_the_limit_the_launcher_asks_every_worker_and_says_when_all_have_answered(tmp_path: Path) -> None:
    # A worker is asked by a script on standard input; w1 has gone.
    ssh = '[ "$4" = sh ] || { echo 64; exit; }\n[ "$host" = w0 ] || exit 255\nshift 3; exec "$@"'
    begins_a_row = "printf '  16777216 4194304 float sum -1'; sleep 4"
    said = launcher(tmp_path, "sh", "-c", begins_a_row, ssh=ssh, GPUCTL_LIMIT="1")
    own = WorkerReport()
    left = [line for line in said.stdout.splitlines() if not own.take(line)]
    assert left == ["  16777216 4194304 float sum -1"]
    assert own.looked
    assert (own.ranks("w0", NAME), own.ranks("w1", NAME)) == ([], None)


def test_a_program_that_is_missing_ends_the_launcher_with_its_name(tmp_path: Path) -> None:
    said = launcher(tmp_path, "echo", ssh="exit 1", GPUCTL_NEEDS="no-such-test")
    assert (said.returncode, said.stdout) == (127, "gpuctl: missing no-such-test\n")


def test_the_folders_that_the_user_names_come_first_and_have_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/tool").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "mine/tool").chmod(0o755)
    one = {"GPUCTL_HOSTS": "", "GPUCTL_NEEDS": "tool"}
    assert launcher(tmp_path, "tool", "0", ssh="", GPUCTL_FIRST=f"{tmp_path}/mine", **one).stdout == "mine\n"
    said = launcher(tmp_path, "tool", "0", ssh="", GPUCTL_FIRST="/nope:/", **one)
    assert (said.returncode, said.stdout) == (127, "gpuctl: missing /nope\n")
