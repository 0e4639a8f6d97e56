"""Pods that are this machine are asked: the same text as in a pod, started the same way."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuctl.cluster.probe import flow
from gpuctl.cluster.probe.flow import PortCheck
from gpuctl.cluster.probe.model import Facts, ProbeRequest
from gpuctl.cluster.probe.pod import container, network, run_programs
from gpuctl.remote import detached
from gpuctl.remote.supervisor import protocol
from tests.rig.local_pods import Pod, kill, strangers

FILES = sorted(Path(network.__file__).parent.glob("*.py"))


@pytest.fixture
def pods(tmp_path: Path) -> list[Pod]:
    return [Pod(tmp_path / f"runs-{rank}", f"lab-{rank}") for rank in range(2)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_python_reads_what_is_carried_and_it_needs_only_its_own(path: Path) -> None:
    assert strangers(path, flow.MODULES) == set()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_both_are_asked_while_the_first_holds_the_port_that_the_other_reaches(pods: list[Pod], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    wanted = ProbeRequest(
        ["localhost", "no-such-name.invalid"], str(script), ("sh", "no-such-program"), port=free_port()
    )
    facts, held = flow.probe([pod.target for pod in pods], wanted)
    assert held == PortCheck("")
    first, second = facts
    assert (first.answer["reached"], second.answer["reached"]) == (None, "ok")
    assert first.answer["script"]["size"] == 9
    assert first.answer["programs"]["no-such-program"] is None
    assert set(first.names_wrong()) == {"no-such-name.invalid"}
    assert first.answer["shm"]["bytes"] > 0
    assert first.answer["hostfile"] == {"why": "No such file or directory"}


def test_a_port_that_another_program_has_is_busy(pods: list[Pod]) -> None:
    with socket.create_server(("", 0)) as taken:
        held = flow.probe([pods[0].target], ProbeRequest(["localhost"], port=taken.getsockname()[1]))[1]
    assert held == PortCheck("busy")


def test_a_port_is_held_where_the_kernel_has_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with `ipv6.disable=1`: Python was built with it, and the kernel refuses the socket."""
    real = socket.socket

    def without_ipv6(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, kind)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    found = network.listen(0)
    assert isinstance(found, real)
    with found:
        assert found.family == socket.AF_INET


def test_nobody_at_the_port_is_no_answer_and_another_program_is_reported() -> None:
    assert network.reach("localhost", free_port(), 0.3) == "Connection refused"
    with socket.create_server(("localhost", 0)) as other:
        assert network.reach("localhost", other.getsockname()[1], 0.5) == "no answer"


def test_a_pod_that_cannot_be_reached_is_reported_and_the_others_are_asked(pods: list[Pod]) -> None:
    pods[1].broken = True
    facts, held = flow.probe([pod.target for pod in pods], ProbeRequest(["localhost"]))
    assert ([each.unread for each in facts], held) == (["", "it does not answer"], None)


def test_a_training_that_somebody_started_by_hand_is_found(pods: list[Pod]) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)", "their-train.py"]
    other = subprocess.Popen(words, env={"RANK": "0", "WORLD_SIZE": "2"})
    try:
        found = container.trainings(pods[0].target.runs)
        assert [each["command"].split()[-1] for each in found if each["pid"] == other.pid] == ["their-train.py"]
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("kept_on", [True, False])
def test_what_ssh_began_for_a_training_is_reported_from_what_somebody_listens_to(
    pods: list[Pod], kept_on: bool
) -> None:
    mark = detached.token() if kept_on else "a" * 32
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    other = subprocess.Popen(words, env={"RANK": "0", "WORLD_SIZE": "2", "PYTHON_GPUCTL_PROGRAM": mark})
    try:
        found = container.trainings(pods[0].target.runs)
        assert [each["token"] for each in found if each["pid"] == other.pid] == [mark if kept_on else ""]
    finally:
        other.kill()
        other.wait()


def test_programs_are_asked_together_and_the_late_one_is_killed() -> None:
    found = run_programs.run_programs(
        {"well": ["sh", "-c", "echo 1; exit 3"], "late": ["sleep", "60"], "none": ["no-such"]}, 1.0
    )
    assert found["well"] == {"code": 3, "text": "1\n"}
    assert (found["late"]["why"], found["none"]["why"]) == ("late", "none")


def test_a_program_that_prints_too_much_is_killed_and_its_output_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_programs, "MAX_OUTPUT", 1 << 16)
    result = run_programs.run_programs({"gpus": ["yes"], "ssh b": ["yes"], "details": ["yes"]}, 20.0)
    assert {(ended["code"], ended["why"]) for ended in result.values()} == {(None, "excess")}
    facts = Facts("lab-0", {"answers": result, "devices": {"gpus": ["nvidia0"]}})
    assert (facts.gpus_wrong, facts.details) == ("it printed too much and was stopped", None)
    assert facts.ssh("b") == "ssh: it printed too much and was stopped"


def test_one_that_cannot_be_killed_is_late_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi that hangs in the kernel; here nobody tells it to end."""
    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: spared.append(pid))
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr(run_programs, "UNKILLABLE_S", 0.1)
    beats: list[int] = []
    found = run_programs.run_programs({"hangs": ["sleep", "600"]}, 0.2, lambda: beats.append(1))
    assert found["hangs"]["why"] == "late"
    assert beats
    monkeypatch.undo()
    for pid in spared:
        kill(pid)
        os.waitpid(pid, 0)


def test_who_leaves_in_the_middle_leaves_nothing_behind() -> None:
    def leave() -> None:
        raise protocol.Gone

    before = set(children())
    with pytest.raises(protocol.Gone):
        run_programs.run_programs({"late": ["sleep", "600"]}, 60, leave)
    assert set(children()) <= before


def children() -> list[str]:
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


@pytest.mark.parametrize(("text", "has"), [("parser.add_argument('--no_ssh')", True), ("parser", False)])
def test_whether_deepspeed_can_start_without_ssh_is_read_from_its_own_text(
    tmp_path: Path, text: str, has: bool
) -> None:
    launcher = tmp_path / "lib/python3.11/site-packages/deepspeed/launcher/runner.py"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(text)
    script = tmp_path / "bin/deepspeed"
    script.parent.mkdir()
    script.write_text(f"#!{tmp_path}/bin/python3\nimport deepspeed\n")
    assert container.no_ssh(str(script)) is has
    assert container.no_ssh(str(tmp_path / "none")) is None


def test_a_question_that_is_broken_off_waits_for_nobody(pods: list[Pod]) -> None:
    pods[0].target.stop.set()
    facts, _ = flow.probe([pod.target for pod in pods], ProbeRequest(["localhost"]))
    assert [each.unread for each in facts] == ["broken off", ""]
