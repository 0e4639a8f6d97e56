"""Ending shown processes: real ones of this test, and made-up ones whose pid was used again in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import end_processes
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts.answer_types import ProcessEnds
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import process_details
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.engine import typed_json

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program; what is left of it is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(argv or ["sleep", "60"], stdout=subprocess.PIPE))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def shown(pid: int, host: Host | None = None, **more: Any) -> dict[str, Any]:
    host = host or Host()
    details = process_details.read(host, pid, process_details.boot_time(host))
    assert details is not None
    return {**{name: details[name] for name in ("pid", "start_ticks", "since", "uid", "cgroup")}, **more}


def end(*processes: dict[str, Any], host: Host | None = None, signals: Any = None, **more: Any) -> list[dict[str, Any]]:
    request = {"processes": list(processes), "grace_s": 0.3, **more}
    answer = end_processes.run(host or Host(), request, signals)
    typed_json.read(answer, ProcessEnds)
    rows: list[dict[str, Any]] = answer["processes"]
    return rows


def test_a_process_ends_after_term(start: Start) -> None:
    process = start()
    [row] = end(shown(process.pid), grace_s=10)
    assert (row["state"], row["signals"], process.wait(5)) == ("ended", ["TERM"], -signal.SIGTERM)


def test_one_that_ignores_term_is_killed_after_the_grace_time(start: Start) -> None:
    process = start(sys.executable, "-c", DEAF)
    assert process.stdout is not None
    process.stdout.readline()
    [row] = end(shown(process.pid), grace_s=0.1)
    assert (row["state"], row["signals"], process.wait(5)) == ("killed", ["TERM", "KILL"], -signal.SIGKILL)


def test_check_mode_sends_nothing(start: Start) -> None:
    process = start()
    [row] = end(shown(process.pid), check=True)
    assert (row["state"], row["signals"], process.poll()) == ("runs", [], None)


OTHERS = {
    "a pid that was used again": ({"start_ticks": 1}, "started at another time: the pid was used again"),
    "a start that nobody knew": ({"start_ticks": None}, "another time"),
    "another boot": ({"since": 1_000}, "the node was restarted"),
    "another user": ({"uid": 4_000_000}, "runs as another user"),
    "another owner": ({"cgroup": "0::/user.slice"}, "its control group changed"),
}


@pytest.mark.parametrize(("change", "reason"), OTHERS.values(), ids=list(OTHERS))
def test_if_one_is_not_what_was_shown_none_gets_a_signal(start: Start, change: dict[str, Any], reason: str) -> None:
    first, second = start(), start()
    rows = end(shown(first.pid), shown(second.pid, **change))
    assert [row["state"] for row in rows] == ["runs", "changed"]
    assert reason in rows[1]["reason"]
    assert (first.poll(), second.poll()) == (None, None)


def test_what_has_ended_already_does_not_keep_the_others(start: Start) -> None:
    first, second = start(), start()
    rows = [shown(first.pid), shown(second.pid)]
    first.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # a zombie until this test collects it
    assert [row["state"] for row in end(*rows, grace_s=10)] == ["gone", "ended"]


class Pids(end_processes.Signals):
    """Stand-in for the kernel: notes signals. `descriptors`: as a kernel with pidfds has them."""

    def __init__(self, *, descriptors: bool, deny: bool = False) -> None:
        self.descriptors, self.deny = descriptors, deny
        self.sent: list[tuple[int, str]] = []
        self.before_send: Callable[[], None] = lambda: None
        self.exited: set[int] = set()

    def open(self, pid: int) -> int | None:
        return pid if self.descriptors else None

    def send(self, pid: int, descriptor: int | None, number: int) -> None:
        self.before_send()
        if self.deny:
            raise PermissionError
        if descriptor in self.exited:
            raise ProcessLookupError
        self.sent.append((pid, signal.Signals(number).name))

    def has_exited(self, descriptor: int) -> bool:
        return descriptor in self.exited

    def close(self, descriptor: int) -> None:
        pass


def made_up(tmp_path: Path, pid: int = 77, name: str = "python", ticks: int = 500, state: str = "S") -> Host:
    folder = tmp_path / f"proc/{pid}"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{pid} ({name}) {state} {numbers} {ticks} 0\n")
    (folder / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    (folder / "cgroup").write_text("0::/user.slice/user-1000.slice/session-3.scope\n")
    (tmp_path / "proc/stat").write_text("btime 1790000000\n")
    return Host(tmp_path)


@pytest.mark.parametrize("name", ["nvidia-persiste", "nv-hostengine", "nvidia-cuda-mps", "Xorg", "kubelet", "slurmd"])
def test_a_service_that_all_share_is_refused(tmp_path: Path, name: str) -> None:
    host, signals = made_up(tmp_path, name=name), Pids(descriptors=True)
    [row] = end(shown(77, host), host=host, signals=signals)
    assert (row["state"], signals.sent) == ("refused", [])
    assert f"{name} serves everybody" in row["reason"]


def test_a_process_in_state_d_is_left_with_what_helps(tmp_path: Path) -> None:
    host, signals = made_up(tmp_path, state="D"), Pids(descriptors=True)
    end_processes.KILL_S, before = 0.1, end_processes.KILL_S
    try:
        [row] = end(shown(77, host), host=host, signals=signals)
    finally:
        end_processes.KILL_S = before
    assert (row["state"], row["signals"]) == ("left", ["TERM", "KILL"])
    assert "only a reset of the GPU or a reboot helps" in row["reason"]


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_pid_that_is_used_again_after_term_gets_no_kill(tmp_path: Path, descriptors: bool) -> None:
    host, signals = made_up(tmp_path), Pids(descriptors=descriptors)
    victim = shown(77, host)

    def replaced() -> None:
        """The process ends before the first signal has been sent, and another gets its pid."""
        made_up(tmp_path, ticks=900)
        signals.exited.add(77)
        signals.before_send = lambda: None

    signals.before_send = replaced
    [row] = end(victim, host=host, signals=signals)
    assert ("KILL" in row["signals"], row["state"]) == (False, "gone" if descriptors else "ended")
    assert [name for _, name in signals.sent] == ([] if descriptors else ["SIGTERM"])


def test_without_descriptors_the_pid_is_compared_before_each_signal(tmp_path: Path) -> None:
    host, signals = made_up(tmp_path), Pids(descriptors=False)
    victim = shown(77, host)
    made_up(tmp_path, ticks=900)
    [row] = end(victim, host=host, signals=signals)
    assert (row["state"], signals.sent) == ("changed", [])


def test_a_process_of_another_user_is_denied(tmp_path: Path) -> None:
    host, signals = made_up(tmp_path), Pids(descriptors=True, deny=True)
    [row] = end(shown(77, host), host=host, signals=signals)
    assert (row["state"], row["signals"]) == ("denied", [])
