"""Attached programs: real processes that end with their connection."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from gpuctl.remote import attached, connection, packing
from gpuctl.remote.connection import Refused
from gpuctl.remote.model import ProcessExit, Program
from gpuctl.remote.supervisor import process as child
from gpuctl.remote.supervisor import protocol
from tests.rig.local_pods import Pod, kill, lives, python, strangers, until

FILES = sorted(Path(connection.__file__).with_name("supervisor").glob("*.py"))
# Prints its own number and those of a child and of one that leaves its group, all of which ignore SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
words = [sys.executable, "-c", "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
others = [subprocess.Popen(words), subprocess.Popen(words, start_new_session=True)]
print(os.getpid(), *(each.pid for each in others), flush=True)
time.sleep(600)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path / "runs")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_packed_modules_parse_in_an_old_python_and_import_only_its_library(path: Path) -> None:
    assert strangers(path, connection.MODULES) == set()


def test_output_arrives_in_order_and_the_exit_code_is_returned(pod: Pod) -> None:
    said: list[bytes] = []
    text = "import sys; print('one', flush=True); print('two', file=sys.stderr, flush=True); sys.exit(3)"
    assert attached.run(pod.target, python(text), said.append) == ProcessExit(3)
    assert b"".join(said) == b"one\ntwo\n"


def test_large_output_arrives_whole(pod: Pod) -> None:
    said: list[bytes] = []
    text = "import sys; sys.stdout.write('x' * 5_000_000 + 'end')"
    assert attached.run(pod.target, python(text), said.append).code == 0
    whole = b"".join(said)
    assert (len(whole), whole[-3:]) == (5_000_003, b"end")


def test_a_program_gets_its_folder_its_variables_and_those_of_the_pod(pod: Pod, tmp_path: Path) -> None:
    said: list[bytes] = []
    text = "import os; print(os.getcwd(), os.environ['A'], os.environ['PATH'] != '')"
    attached.run(pod.target, python(text, folder=str(tmp_path), env={"A": "b c"}), said.append)
    assert b"".join(said).decode() == f"{tmp_path} b c True\n"
    (tmp_path / "env").write_text("export NODE_RANK=7\nexport NAME='a b'\n")
    assert child.read_env_file(tmp_path / "env") == {"NODE_RANK": "7", "NAME": "a b"}
    assert child.read_env_file(tmp_path / "none") == {}


@pytest.mark.parametrize(("in_pod", "mode"), [(True, 0o664), (False, 0o644)])
def test_files_of_a_program_are_writable_by_the_group_in_pods_only(in_pod: bool, mode: int, tmp_path: Path) -> None:
    """On a host, programs run as root, and its umask holds."""
    if in_pod:
        (tmp_path / "env").write_text("export NODE_RANK=0\n")
    text = f"open({str(tmp_path / 'file')!r}, 'w')"
    order = {**python(text).order("run"), "env_file": str(tmp_path / "env")}
    before = os.umask(0o022)
    try:
        started = child.Child(order)
    finally:
        os.umask(before)
    until(started.is_finished)
    started.finish()
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_stop_ends_all_processes_even_outside_the_group_or_ignoring_sigterm(pod: Pod) -> None:
    said: list[bytes] = []
    stop = threading.Event()
    pids: list[int] = []

    def out(data: bytes) -> None:
        said.append(data)
        if b"\n" in data:
            pids.extend(map(int, b"".join(said).split()))
            stop.set()

    ended = attached.run(pod.target, python(STUBBORN, grace_s=0.5), out, stop)
    assert ended == ProcessExit(None, signal.SIGKILL, requested=True)
    assert ended.description == "ended on request, ended by SIGKILL"
    assert len(pids) == 3
    assert not [pid for pid in pids if lives(pid)]


def test_a_program_that_ends_on_sigterm_is_not_killed(pod: Pod) -> None:
    stop = threading.Event()
    text = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(5)); print(1, flush=True); time.sleep(600)"
    ended = attached.run(pod.target, python(text, grace_s=20), lambda _: stop.set(), stop)
    assert ended == ProcessExit(5, requested=True)


def test_processes_that_a_program_leaves_behind_are_ended(pod: Pod) -> None:
    said: list[bytes] = []
    text = (
        "import subprocess, sys; print(subprocess.Popen("
        "[sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True).pid)"
    )
    assert attached.run(pod.target, python(text), said.append) == ProcessExit(0)
    assert not lives(int(b"".join(said)))


@pytest.mark.parametrize("way", ["the input closes", "our program is told to end", "our program is killed"])
def test_a_program_ends_with_its_connection(pod: Pod, way: str) -> None:
    """Without a word from us; a killed supervisor can only tell its first process."""
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with connection.connect(pod.target, python(text).order("run")) as found:
        said = b""
        while not said.endswith(b"\n"):
            said += b"".join(payload for kind, payload in found.messages() if kind == protocol.OUT)
        pid = int(said)
        process = pod.processes[-1].process
        assert process.stdin
        if way == "the input closes":
            process.stdin.close()
        elif way == "our program is told to end":
            process.terminate()
        else:
            kill(process.pid)
        until(lambda: not lives(pid))
        process.wait(20)


def test_a_program_ends_after_a_long_silence(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = packing.STARTER.replace("sys.exit(module.main())", "module.protocol.SILENT_S = 0.5\nsys.exit(module.main())")
    monkeypatch.setattr(packing, "STARTER", soon)
    ended = attached.run(pod.target, python("import time; time.sleep(600)"))
    assert ended == ProcessExit(None, signal.SIGTERM, requested=True)


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        (Program(["gpuctl-no-such"]), "gpuctl-no-such: No such file or directory"),
        (Program(["true"], folder="/no/such"), "its folder /no/such: No such file or directory"),
        (Program(["/etc/passwd"]), "/etc/passwd: Permission denied"),
    ],
)
def test_a_missing_program_or_folder_is_named(pod: Pod, program: Program, wrong: str) -> None:
    with pytest.raises(Refused) as caught:
        attached.run(pod.target, program)
    assert (caught.value.reason, caught.value.wrong) == ("start", wrong)


def test_nothing_of_gpuctl_stays(pod: Pod, tmp_path: Path) -> None:
    attached.run(pod.target, python("print(1)", folder=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    assert pod.processes[-1].process.poll() == 0


def test_a_process_exit_has_a_description() -> None:
    assert ProcessExit(1).description == "ended with exit code 1"
    assert ProcessExit(None, signal.SIGKILL).description == "ended by SIGKILL (out of memory?)"
    assert ProcessExit(None).description == "its exit status is unknown"
    assert ProcessExit(0, left=("python3",)).description == "ended with exit code 0; still running: python3"
    assert not ProcessExit(0, left=("python3",)).succeeded
    assert ProcessExit(0).succeeded
    assert not ProcessExit(0, requested=True).succeeded
