"""The runner over ssh where something goes wrong on our own side: nothing is left running, whoever fails."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.edges.ssh import Failure, Login
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.remote.transport import OverSsh, RunningProgram

SWEEP = Sweep(gpus_per_node=1, limit_s=60)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a test that never ends, and leaves its number."""
    program(tmp_path / "all_reduce_perf", f"echo $$ > {tmp_path}/pid-$NODE; exec sleep 100")
    return tmp_path


def on(node: str, limit_s: float = 60) -> Launch:
    return Launch((node,), replace(SWEEP, limit_s=limit_s, env={"NODE": node}))


def here(folder: Path, *nodes: str) -> MpiRunner:
    """Nodes that are all this machine."""
    return MpiRunner(OverSsh({node: Login(node, local=True) for node in nodes}), MpirunOptions((str(folder),)))


def runs(folder: Path, node: str) -> bool:
    """Whether the test of a node runs; where it never began it does not."""
    try:
        pid = int((folder / f"pid-{node}").read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return False
    return True


def quiet(_: Launch, __: str) -> None:
    """Nobody listens."""


def test_a_start_that_fails_ends_those_before_it(folder: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(KeyError, match="nobody"):
        here(folder, "a", "b", "c").run([on("a"), on("b"), Launch(("c", "nobody"), SWEEP)], quiet, lambda: False)
    assert time.monotonic() - begun < 30
    time.sleep(2)  # what was left alone would begin by now
    assert not runs(folder, "a")
    assert not runs(folder, "b")


def test_what_fails_while_a_run_is_ended_ends_all_the_others(folder: Path) -> None:
    def listener(_: Launch, message: str) -> None:
        if message.startswith("not finished within"):
            raise RuntimeError("the terminal is gone")

    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="the terminal is gone"):
        here(folder, "a", "b").run([on("a", limit_s=2), on("b")], listener, lambda: False)
    assert time.monotonic() - begun < 40
    assert (folder / "pid-a").exists()
    assert (folder / "pid-b").exists()
    assert not runs(folder, "a")
    assert not runs(folder, "b")


def test_a_question_that_fails_ends_everything(folder: Path) -> None:
    def broken_off() -> bool:
        if runs(folder, "a") and runs(folder, "b"):
            raise OSError("nobody can be asked")
        return False

    with pytest.raises(OSError, match="nobody can be asked"):
        here(folder, "a", "b").run([on("a"), on("b")], quiet, broken_off)
    assert not runs(folder, "a")
    assert not runs(folder, "b")


@pytest.fixture
def ssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh that runs everything here, but for the connections (counted from 1) that the file `silent` names."""
    words = f"""n=$(cat {folder}/count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {folder}/count
echo "$@" >> {folder}/asked
grep -qx $n {folder}/silent && {{ echo 'ssh: connect to host a port 22: No route to host' >&2; exit 255; }}
exec python3 -IS -"""
    program(folder / "ssh", words)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def hung(folder: Path, silent: str) -> LaunchResult:
    """A run that hangs on a node that does not answer these connections: 1 starts, 2 looks, 3 and 4 end."""
    (folder / "silent").write_text(silent)
    runner = MpiRunner(OverSsh({"a": Login("a", python="python3")}), MpirunOptions((str(folder),)))
    (ended,) = runner.run([on("a", limit_s=2)], quiet, lambda: False)
    assert ended.run.outcome is Outcome.HUNG
    assert not runs(folder, "a")
    return ended


def test_a_node_that_was_silent_for_a_moment_is_asked_again_and_not_lost(ssh: Path) -> None:
    assert hung(ssh, "2\n").lost == ()
    asked = (ssh / "asked").read_text().splitlines()
    assert ["ControlPath=none" in line for line in asked] == [False, False, True]


def test_a_node_that_is_silent_only_when_it_is_to_end_is_asked_again(ssh: Path) -> None:
    assert hung(ssh, "3\n").lost == ()


def test_a_node_that_stays_silent_is_lost(ssh: Path) -> None:
    assert hung(ssh, "2\n3\n").lost == ("a",)


class Silent:
    """What a carrier started, which says nothing and ends when it is told to."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def lines(self) -> Iterator[str]:
        assert self.told.wait(60)
        return iter(())

    def end(self) -> None:
        self.told.set()

    def wait(self, patience_s: float = 10) -> tuple[int, str]:
        return -1, "the connection broke"


class Cut:
    """A carrier whose way to the nodes has broken."""

    start_options: Mapping[str, Any] = {}

    def check(self, nodes: Sequence[str]) -> None:
        pass

    def address(self, node: str) -> str:
        return node

    def start(self, node: str, program: bytes) -> Silent:
        return Silent()

    def query(self, node: str, program: bytes, fresh: bool) -> Failure:
        return Failure("the connection broke")

    def why(self, node: str, ended: tuple[int, str], limit_s: float) -> Failure:
        return Failure(ended[1])

    def inconclusive(self, nodes: Sequence[str], started: RunningProgram, ranks_reported: bool) -> str:
        return "" if ranks_reported else "the connection broke"


@pytest.mark.parametrize(
    ("limit_s", "broken_off", "outcome", "cause"),
    [
        (0.1, False, Outcome.EMPTY, "not known: the connection broke"),
        (60, True, Outcome.KILLED, "broken off"),
    ],
)
def test_a_way_that_broke_is_no_hang_and_who_wants_no_more_is_told_no_other_reason(
    limit_s: float, broken_off: bool, outcome: Outcome, cause: str
) -> None:
    launch = Launch(("a", "b"), Sweep(gpus_per_node=1, limit_s=limit_s))
    (ended,) = MpiRunner(Cut()).run([launch], lambda _, __: None, lambda: broken_off)
    assert (ended.run.outcome, ended.run.cause, ended.lost) == (outcome, cause, ("a", "b"))
