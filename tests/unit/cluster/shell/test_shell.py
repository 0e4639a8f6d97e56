"""A command in pods: how it is found again, what its output becomes, and how it ended in all of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster import pod_selection
from gpuctl.cluster.shell import programs
from gpuctl.cluster.shell.exec_all import MAX_LINE, CommandResult, LinePrinter, Lines, code
from gpuctl.cluster.shell.flow import Left, broke
from gpuctl.edges.kube.cancel import Stop


def test_a_command_is_marked_and_keeps_its_words_as_they_are() -> None:
    argv = programs.enter("m1", ["sh", "-c", f'echo "${programs.MARK}" "$@"', "sh", "a b", "$HOME"])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "m1 a b $HOME\n"


def test_a_command_gives_its_exit_code_and_one_that_is_not_there_127() -> None:
    assert (
        subprocess.run(programs.enter("m2", ["sh", "-c", "exit 9"]), capture_output=True, check=False).returncode == 9
    )
    done = subprocess.run(programs.enter("m3", ["no-such-program"]), capture_output=True, check=False)
    assert done.returncode == 127


def test_complaints_come_with_the_rest_where_that_is_asked_for() -> None:
    argv = programs.enter("m4", ["sh", "-c", "echo wrong >&2"], together=True)
    assert subprocess.run(argv, capture_output=True, text=True, check=False).stdout.endswith("wrong\n")


def test_nothing_is_ended_where_the_command_itself_has_ended_and_left_something_behind() -> None:
    argv = programs.enter("m5", ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"])
    pid = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    try:
        assert subprocess.run(programs.end("m5"), capture_output=True, check=False).stdout == b"0 0\n"
        assert subprocess.run(["kill", "-0", pid], check=False).returncode == 0
    finally:
        subprocess.run(["kill", pid], check=False)


def test_output_becomes_lines_however_it_is_cut() -> None:
    found: list[str] = []
    lines = Lines(found.append)
    for part in (b"on", b"e\r\ntwo\nthr", b"ee \xff"):
        lines.add(part)
    lines.end()
    assert found == ["one", "two", "three �"]


def test_a_line_without_an_end_is_reported_in_pieces() -> None:
    found: list[str] = []
    lines = Lines(found.append)
    for _ in range(5):
        lines.add(b"x" * (MAX_LINE // 2 + 1))
    assert found == ["x" * (MAX_LINE + 2)] * 2


def test_where_nobody_reads_it_any_more_everything_is_broken_off_and_no_more_is_reported() -> None:
    told: list[str] = []

    def say(_: str, line: str) -> None:
        told.append(line)
        raise BrokenPipeError

    stop = Stop()
    teller = LinePrinter(say, stop)
    teller.print_line("lab-0", "one")
    teller.print_line("lab-1", "two")
    assert (told, stop.is_set(), type(teller.wrong)) == (["one"], True, BrokenPipeError)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (Left(False, 0), ""),
        (Left(True, 0), "still ran there, and was ended"),
        (Left(True, 2), "2 processes of the command could not be ended"),
        (Left(False, 0, gone=True), "the pod is gone"),
        (None, "unknown whether the command still runs"),
    ],
)
def test_a_command_that_is_not_heard_any_more_has_ended_only_where_its_pod_says_so(
    left: Left | None, told: str
) -> None:
    assert told in broke(left)
    assert bool(broke(left)) == bool(told)


def test_an_image_in_which_nobody_can_look_says_nothing_of_what_is_left(tmp_path: Path) -> None:
    sh = shutil.which("sh") or ""
    done = subprocess.run([sh, *programs.end("m6")[1:]], env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize(("codes", "worst"), [([0, 0], 0), ([0, 9], 1), ([0, None], 3), ([9, None], 3), ([127], 1)])
def test_the_worst_pod_decides_the_exit_code(codes: list[int | None], worst: int) -> None:
    assert code([CommandResult(f"lab-{n}", each) for n, each in enumerate(codes)]) == worst


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "lab-0"}, "spec": {"nodeName": "gpu-1"}, "status": status}


def test_a_pod_need_not_be_ready_for_something_to_run_in_it() -> None:
    running = pod(containerStatuses=[{"name": "ml", "state": {"running": {}}, "ready": False}])
    assert pod_selection.why_not(running) == ""
    running["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_selection.why_not(running) == "it is ending"


def test_why_nothing_can_run_in_a_pod_is_reported() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    told = pod_selection.why_not(
        pod(containerStatuses=[{"name": "ml", "image": "a/b:1", "state": {"waiting": waiting}}])
    )
    assert told.startswith("it does not start on gpu-1: the image a/b:1 cannot be pulled (ImagePullBackOff)")
    other = pod(containerStatuses=[{"name": "other", "state": {"running": {}}}])
    assert pod_selection.why_not(other) != ""
