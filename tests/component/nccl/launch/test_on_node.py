"""What runs on the nodes, here on this machine: it starts a program, takes it along, finds and ends what is marked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import process_tree, start

from gpuctl.remote import payload

MARK = "marked "


def asked(*argv: str, **env: str) -> dict[str, object]:
    return {"mark": MARK, "argv": list(argv), "env": env, "program": "sh", "folders": [], "usual": []}


def on_node(request: dict[str, object]) -> subprocess.Popen[str]:
    """The starter as ssh would run it there, fed from standard input."""
    running = subprocess.Popen([sys.executable, "-IS", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdin is not None
    running.stdin.write(payload.program("start", request).decode())
    running.stdin.close()
    return running


def answer(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(text.rpartition(f"\n{MARK}")[2])
    return found


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """What this process does with signals is afterwards as before."""
    before = {number: signal.getsignal(number) for number in start.ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_output_and_errors_come_in_order_and_the_exit_status_last() -> None:
    running = on_node(asked("env", "{program}", "-c", "echo $WHAT; echo wrong >&2; printf cut; exit 3", WHAT="out"))
    assert running.stdout is not None
    text = running.stdout.read()
    running.wait()
    assert text.startswith("out\nwrong\ncut\n")
    assert answer(text) == {"code": 3}


def test_a_program_that_is_not_there_is_named() -> None:
    running = on_node({**asked("mpirun-of-nobody", "{program}")})
    assert running.stdout is not None
    assert answer(running.stdout.read()) == {"missing": "mpirun-of-nobody"}
    running.wait()


def test_it_ends_what_it_started_when_nobody_listens_any_more(tmp_path: Path) -> None:
    running = on_node(asked("env", "{program}", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 100"))
    wait_until((tmp_path / "pid").exists)
    wait_until(lambda: (tmp_path / "pid").read_text().strip() != "")
    pid = int((tmp_path / "pid").read_text())
    assert running.stdout is not None
    running.stdout.close()
    running.wait(10)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("function", "place"), [("become", start), ("setsid", os)], ids=["no group", "no exec"])
def test_it_ends_what_has_only_begun(monkeypatch: pytest.MonkeyPatch, function: str, place: Any) -> None:
    real = getattr(place, function)

    def slowly(*arguments: Any) -> None:
        if function == "setsid":
            real(*arguments)
        time.sleep(0.5)
        if function == "become":
            real(*arguments)

    monkeypatch.setattr(place, function, slowly)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with signals_kept():
        assert start.run(["/bin/sleep", "100"], {}) == {"signal": signal.SIGTERM}


def test_kept_output_has_a_limit_after_which_the_program_is_left() -> None:
    variable = f"NCCL_UNIT={uuid4().hex}"
    name, _, value = variable.partition("=")
    told = start.run_captured(asked("env", "{program}", "-c", "echo begun; exec sleep 100", **{name: value}), 0.5)
    assert told == {"text": "begun\n", "late": True}
    assert process_tree.end(variable.encode()) == []
    assert start.run_captured(asked("env", "{program}", "-c", "echo done"), 30) == {"text": "done\n", "code": 0}


def test_what_is_marked_is_found_told_apart_and_ended() -> None:
    variable = f"NCCL_UNIT={uuid4().hex}"
    name, _, value = variable.partition("=")
    env = {**os.environ, name: value}
    asleep = subprocess.Popen(["sleep", "100"], env={**env, "OMPI_COMM_WORLD_RANK": "7"})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], env=env)
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"], env=env, stdout=-1)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    found = {one["pid"]: one for one in process_tree.observe(variable.encode())}
    assert (found[asleep.pid]["rank"], found[asleep.pid]["still"], found[asleep.pid]["name"]) == (7, True, "sleep")
    assert found[busy.pid]["still"] is False
    assert process_tree.end(variable.encode()) == []
    assert [process.wait() for process in (asleep, busy, stubborn)] == [-15, -15, -9]


def test_what_starts_ranks_has_time_to_end_by_itself_and_is_told_once(tmp_path: Path) -> None:
    # As Open MPI's, it ends by itself when its rank does, and at once, leaving its files, when it is told to end.
    launcher = tmp_path / "mpirun"
    launcher.write_text(f"""#!/bin/sh
trap 'echo told > {tmp_path}/how; exit' TERM
sleep 100 &
echo up
wait $!; sleep 1; echo alone > {tmp_path}/how
""")
    launcher.chmod(0o755)
    variable = f"NCCL_UNIT={uuid4().hex}"
    name, _, value = variable.partition("=")
    running = subprocess.Popen([launcher], env={**os.environ, name: value}, stdout=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    assert process_tree.end(variable.encode()) == []
    running.wait()
    assert (tmp_path / "how").read_text() == "alone\n"


def test_whoever_does_not_end_is_killed() -> None:
    term, kill = (signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)
    assert [process_tree.signals(False, told, s) for told, s in ((False, 0), (True, 1), (True, 1.6))] == [
        term,
        (),
        kill,
    ]
    steps = ((False, 0), (False, 2.9), (False, 3.1), (True, 4), (True, 6.1))
    assert [process_tree.signals(True, told, s) for told, s in steps] == [(), (), term, (), kill]


def test_a_process_whose_first_thread_has_ended_is_not_gone() -> None:
    variable = f"NCCL_UNIT={uuid4().hex}"
    name, _, value = variable.partition("=")
    program = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(100,)).start(); "
    headless = subprocess.Popen(
        [sys.executable, "-c", program + "ctypes.CDLL(None).pthread_exit(None)"], env={**os.environ, name: value}
    )
    wait_until(lambda: process_tree.fields(headless.pid)[:1] == ["Z"])
    assert [one["pid"] for one in process_tree.observe(variable.encode())] == [headless.pid]
    assert process_tree.end(variable.encode()) == []
    assert headless.wait() == -15


VARIABLE = b"NCCL_UNIT=1"
NOBODY = 2**31 - 9  # no kernel gives a process such a number


def process(
    proc: Path, state: str, environ: bytes = b"", flags: int = process_tree.PF_EXITING, began: int = 77
) -> None:
    """What the kernel tells of a process, with one thread."""
    numbers = f"1 1 1 0 -1 {flags} 9 0 0 0 5 5 0 0 20 0 1 0 {began} 3133440 383"
    told = f"{NOBODY} (all_reduce_perf) {state} {numbers}\n"
    # It is read meanwhile: no new process may be seen with the environment of the old one.
    for name, text in (("environ", environ), ("stat", told.encode())):
        for folder in (proc / str(NOBODY), proc / str(NOBODY) / "task" / str(NOBODY)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "new").write_bytes(text)
            (folder / "new").replace(folder / name)  # at once, as the kernel's change


def test_a_process_that_the_kernel_holds_while_it_ends_is_left(tmp_path: Path) -> None:
    process(tmp_path, "R", b"A=B\0" + VARIABLE, flags=0)

    def killed() -> None:  # its environment goes at once; a driver keeps the rest
        process(tmp_path, "D")

    timer = threading.Timer(0.3, killed)
    timer.start()
    (left,) = process_tree.end(VARIABLE, 2.0, tmp_path)
    assert (left["pid"], left["name"], left["state"]) == (NOBODY, "all_reduce_perf", "D")


def test_a_process_that_was_already_ending_is_waited_for(tmp_path: Path) -> None:
    process(tmp_path, "D")
    assert [one["pid"] for one in process_tree.end(VARIABLE, 0.3, tmp_path)] == [NOBODY]


def test_a_process_that_waits_for_its_parent_alone_is_gone(tmp_path: Path) -> None:
    process(tmp_path, "Z")
    assert process_tree.end(VARIABLE, 0.3, tmp_path) == []


def test_a_number_that_another_process_has_now_is_not_ours(tmp_path: Path) -> None:
    process(tmp_path, "S", VARIABLE, flags=0)
    threading.Timer(0.3, lambda: process(tmp_path, "S", b"A=B", flags=0, began=99)).start()
    assert process_tree.end(VARIABLE, 5.0, tmp_path) == []


def test_nor_is_one_that_takes_the_number_while_we_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, "S", VARIABLE, flags=0)
    environment = process_tree.environment

    def then_another(pid: int, proc: Path) -> bytes:
        found = environment(pid, proc)
        process(tmp_path, "S", b"A=B", flags=0, began=99)
        return found

    monkeypatch.setattr(process_tree, "environment", then_another)
    found = process_tree.marked(VARIABLE, tmp_path)
    assert list(found) == [NOBODY]
    assert process_tree.remaining(found, tmp_path) == {}


def wait_until(done: Callable[[], bool], limit_s: float = 10) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, "it never became so"
        time.sleep(0.02)


def test_the_folders_that_the_user_names_come_before_the_path_and_have_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "sh").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "sh").chmod(0o755)
    mine = on_node({**asked("sh"), "folders": [str(tmp_path)]})
    assert mine.stdout is not None
    assert "mine" in mine.stdout.read()
    nowhere = on_node({**asked("{program}"), "folders": ["/nope"]})
    assert nowhere.stdout is not None
    assert answer(nowhere.stdout.read()) == {"missing": "/nope"}


def test_a_captured_program_that_prints_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "MOST_OUTPUT", 1 << 16)
    answer = start.run_captured(asked("env", "{program}", "-c", "exec yes"), 30)
    assert answer == {"text": "y\n" * (1 << 15), "excess": True}
