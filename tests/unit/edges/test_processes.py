"""Programs are fed, read up to a limit, and stopped in time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuctl.edges.processes import Processes, SecondTurn
from gpuctl.edges.ssh import Login, explain
from gpuctl.edges.streams import KEPT, LONGEST_LINE, Stream

FOR_EVER = 600.0
MIB = 2**20


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_a_program_is_fed_and_both_of_its_streams_are_read() -> None:
    done = Processes().run(sh("cat; echo complaint >&2; exit 3"), b"x" * 300_000, FOR_EVER)
    assert (done.code, len(done.out), done.err, done.excess) == (3, 300_000, "complaint\n", False)


def test_input_is_built_once_the_program_runs() -> None:
    assert Processes().run(["cat"], lambda: b"late", FOR_EVER).out == b"late"


ASKS = "read a; echo heard $a; read b || exit 3; echo then $b; cat"


def after_its_first_line(more: tuple[bytes, float] | None, seen: list[bytes]) -> SecondTurn:
    def then(output: bytes) -> tuple[bytes, float] | None:
        seen.append(output)
        return more

    return SecondTurn(lambda output: output.endswith(b"\n"), then)


def test_a_program_gets_more_input_after_its_first_answer() -> None:
    seen: list[bytes] = []
    done = Processes().run(sh(ASKS), b"one\n", 0.4, second=after_its_first_line((b"two\nthree\n", FOR_EVER), seen))
    assert seen == [b"heard one\n"]
    assert (done.code, done.out, done.first) == (0, b"heard one\nthen two\nthree\n", len(seen[0]))


def test_the_input_of_a_program_ends_if_there_is_no_second_turn() -> None:
    done = Processes().run(sh(ASKS), b"one\n", FOR_EVER, second=after_its_first_line(None, []))
    assert (done.code, done.out, done.first) == (3, b"heard one\n", 0)


def test_a_program_that_has_ended_gets_no_second_turn() -> None:
    def then(_: bytes) -> tuple[bytes, float]:
        time.sleep(0.1)
        return b"two\n", FOR_EVER

    turn = SecondTurn(lambda output: output.endswith(b"\n"), then)
    done = Processes().run(sh("read a; echo heard $a; exit 4"), b"one\n", FOR_EVER, second=turn)
    assert (done.code, done.first) == (4, 0)


def test_the_second_turn_has_a_time_limit_of_its_own() -> None:
    turn = after_its_first_line((b"two\n", 0.1), [])
    done = Processes().run(sh("read a; echo heard $a; exec sleep 600"), b"one\n", FOR_EVER, second=turn)
    assert (done.code, done.excess, done.limit) == (None, False, 0.1)


def test_input_that_is_not_read_is_no_error() -> None:
    assert Processes().run(sh("exec 0<&-; echo done"), b"x" * 300_000, FOR_EVER).out == b"done\n"


def test_output_before_the_end_is_complete() -> None:
    done = Processes().run([sys.executable, "-c", "print('x' * 3_000_000)"], b"", FOR_EVER)
    assert (done.code, len(done.out)) == (0, 3_000_001)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_program_that_prints_endlessly_is_stopped(stream: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = Processes(most_output=4 * MIB).run(sh(f"exec yes >&{stream}"), b"", FOR_EVER)
    assert (done.code, done.excess) == (None, True)
    assert max(len(done.out), len(done.err)) < 5 * MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_endless_output_is_explained() -> None:
    done = Processes(most_output=MIB).run(sh("exec yes"), b"", FOR_EVER)
    failure = explain(Login("gpu-1"), done, 60)
    assert failure.wrong == "it printed more than 16 MiB and was stopped"
    assert "login shell" in failure.hint


def test_a_program_that_exceeds_its_time_is_killed_and_its_output_kept() -> None:
    started = time.monotonic()
    done = Processes().run(sh("echo begun; exec sleep 600"), b"", 0.5)
    assert (done.code, done.out, done.excess) == (None, b"begun\n", False)
    assert time.monotonic() - started < 60


def test_a_standard_error_held_open_delays_nothing() -> None:
    """As an OpenSSH that stays behind to share its connection."""
    done = Processes().run(sh("sleep 20 >/dev/null & echo answer; echo said >&2"), b"", FOR_EVER)
    assert (done.code, done.out, done.err) == (0, b"answer\n", "said\n")


def test_no_program_starts_after_stop() -> None:
    processes = Processes()
    processes.stop()
    assert processes.run(["true"], b"", FOR_EVER).code is None


def test_a_very_long_line_comes_in_parts() -> None:
    stream = Stream(sh("yes | tr -d '\\n'"), b"")
    lines = stream.lines()
    assert len(next(lines)) == LONGEST_LINE
    stream.end()
    stream.wait()


def test_long_standard_error_keeps_its_start_and_end() -> None:
    stream = Stream(sh("echo first >&2; yes | head -c 3000000 >&2; echo last >&2"), b"")
    assert list(stream.lines()) == []
    code, complaints = stream.wait(60)
    assert code == 0
    assert complaints.startswith("first\n")
    assert complaints.endswith("y\nlast\n")
    assert "bytes omitted]" in complaints
    assert len(complaints) < 2 * KEPT + 100


STOP_ALL = """
import os, sys, threading, time
from pathlib import Path
from gpuctl.edges import processes

folder = Path(sys.argv[1])
made = processes.Processes()
scripts = {
    "connection": "sleep 600 >/dev/null & echo $! >connection.new; mv connection.new connection; wait",
    "stubborn": "(trap '' TERM; sleep 600) >/dev/null & echo $! >stubborn.new; mv stubborn.new stubborn; wait",
    "leader": "trap '' TERM; echo $$ >leader.new; mv leader.new leader; sleep 600; sleep 600",
}
for script in scripts.values():
    run = lambda text=script: made.run(["sh", "-c", text], b"", 600, folder=str(folder))
    threading.Thread(target=run, daemon=True).start()
while not all((folder / name).exists() for name in scripts):
    time.sleep(0.02)
processes.stop_all(0.5)
assert processes.Processes().run(["true"], b"", 600).code is None
print(*(int((folder / name).read_text()) for name in scripts), flush=True)
os._exit(0)
"""


def test_the_programs_of_all_threads_end_with_what_they_started_and_none_starts_later(tmp_path: Path) -> None:
    # In a process of its own: it also stops what others of this process have running.
    done = Processes().run([sys.executable, "-c", STOP_ALL, str(tmp_path)], b"", FOR_EVER)
    assert done.code == 0, done.err
    left = {int(pid) for pid in done.out.split()}
    assert len(left) == 3
    for _ in range(1500):
        left = {pid for pid in left if is_running(pid)}
        if not left:
            return
        time.sleep(0.02)
    raise AssertionError(left)


def is_running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


def test_what_a_program_leaves_behind_holds_its_output_open_only_for_the_grace() -> None:
    done = Processes(grace=0.05).run(sh("sleep 600 & echo $!"), b"", FOR_EVER)
    os.kill(int(done.out), signal.SIGKILL)
    assert done.code == 0
