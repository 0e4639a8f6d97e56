"""Promises that every Transport keeps, whatever it reaches nodes by.

tests/component/test_transports.py holds transports to them that need no host; tests/integration has ssh to real hosts
and exec into real pods.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuctl.edges.ssh import Failure
from gpuctl.remote import payload
from gpuctl.remote.transport import RunningProgram, Transport

MARK = "marked "
LIMIT_S = 60.0
# No shell, no line and no encoding may change it; larger than any pipe.
ODD = {"text": "a 'b' \"c\" $HOME `id` {{ x }} \\n\n\té…\u2028", "long": "x" * 300_000}


@dataclass(frozen=True)
class Reached:
    """A transport and its nodes. `unreachable`: a node that does not answer; `cut` breaks a program's connection."""

    transport: Transport
    node: str
    unreachable: str = ""
    cut: Callable[[RunningProgram], object] = lambda _: None


@dataclass
class Reading:
    """A program on a node, read in a thread of its own. `sleep`: an argument that only its processes have."""

    program: RunningProgram
    lines: list[str] = field(default_factory=list)
    sleep: str = ""

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=lambda: self.lines.extend(self._noted()), daemon=True)
        self.started = threading.Event()
        self.thread.start()

    def _noted(self) -> Any:
        for line in self.program.lines():
            self.started.set()
            yield line

    def until_it_prints(self) -> None:
        assert self.started.wait(LIMIT_S), "its first line does not arrive"

    def exit(self) -> tuple[int, str]:
        """Wait for the end of its output, then for its exit status and standard error."""
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive(), "its output does not end"
        return self.program.wait(LIMIT_S)

    @property
    def answer(self) -> Mapping[str, Any] | None:
        answer = payload.answer("\n".join(self.lines).encode(), MARK, Mapping[str, object])
        return None if isinstance(answer, Failure) else answer


def script(body: str, **request: object) -> bytes:
    """A Python program that gets this request."""
    return f"import json, os, sys, time\nrequest = json.loads({json.dumps(request)!r})\n{body}\n".encode()


def start(reached: Reached, *argv: str, **env: str) -> Reading:
    """Start a program on the node as a launch is started, and read it."""
    request = {"mark": MARK, "argv": list(argv), "env": env, "program": "sh", "folders": [], "usual": []}
    text = payload.program("start", {**request, **reached.transport.start_options})
    return Reading(reached.transport.start(reached.node, text))


def start_sleeper(reached: Reached, **env: str) -> Reading:
    """Start a program that prints one line and then runs for a long time."""
    seconds = f"{90_000 + secrets.randbelow(10**6)}.{secrets.randbelow(10**6):06}"
    reading = start(reached, "sh", "-c", f"echo first; exec sleep {seconds}", **env)
    reading.sleep = seconds
    reading.until_it_prints()
    end = time.monotonic() + LIMIT_S
    while not runs(reading):  # while a process becomes another program, its command line is empty
        assert time.monotonic() < end, "it does not run"
        time.sleep(0.05)
    return reading


def command_lines() -> list[str]:
    """Every command line on this machine, those in its containers included."""
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            texts.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it ended
            continue
    return texts


def runs(reading: Reading) -> bool:
    return any(reading.sleep in line for line in command_lines())


def wait_until_gone(reading: Reading) -> None:
    end = time.monotonic() + LIMIT_S
    while runs(reading):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.1)


# ---- promises -------------------------------------------------------------------------------------------------------


def can_be_checked_and_names_an_address(reached: Reached) -> None:
    reached.transport.check([reached.node])
    assert reached.transport.address(reached.node)


def carries_a_request_unchanged(reached: Reached) -> None:
    for fresh in (False, True):
        output = reached.transport.query(reached.node, script("print(json.dumps(request))", **ODD), fresh)
        assert isinstance(output, bytes), output
        assert json.loads(output) == ODD


def refuses_output_without_end(reached: Reached) -> None:
    flood = "while True:\n    sys.stdout.write('x' * 65536)"
    output = reached.transport.query(reached.node, script(flood), fresh=False)
    assert isinstance(output, Failure)
    assert output.wrong.startswith("it printed more than 16 MiB")


def passes_a_line_without_end_in_parts(reached: Reached) -> None:
    reading = start(reached, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert reading.exit()[0] == 0
    assert sum(line.count("x") for line in reading.lines) == 3_000_000
    assert max(map(len, reading.lines)) < 2_000_000


def passes_arguments_to_a_program_unchanged(reached: Reached) -> None:
    reading = start(reached, "printf", "%s|", "two words", "'quoted'", "$HOME", "é", "")
    assert reading.exit()[0] == 0
    assert reading.lines[0] == "two words|'quoted'|$HOME|é||"


def gives_a_program_no_input(reached: Reached) -> None:
    reading = start(reached, "cat")
    assert reading.exit()[0] == 0
    assert reading.answer == {"code": 0}


def returns_exit_status_and_standard_error(reached: Reached) -> None:
    body = "print('to standard output'); print('to standard error', file=sys.stderr); sys.exit(3)"
    reading = Reading(reached.transport.start(reached.node, script(body)))
    code, error = reading.exit()
    assert (code, reading.lines) == (3, ["to standard output"])
    assert "to standard error" in error


def explains_a_program_that_failed_by_its_last_line(reached: Reached) -> None:
    failure = reached.transport.query(reached.node, script("sys.exit('the disk is full')"), False)
    assert isinstance(failure, Failure)
    assert (failure.wrong, failure.unreachable) == ("the disk is full", False)


def yields_lines_as_they_arrive(reached: Reached) -> None:
    reading = start_sleeper(reached)
    assert reading.lines == ["first"]
    assert reading.thread.is_alive()
    reading.program.end()
    reading.exit()


def yields_an_unfinished_last_line_and_undecodable_bytes(reached: Reached) -> None:
    body = "sys.stdout.buffer.write(b'whole\\r\\n\\xff\\nlast'); sys.stdout.flush()"
    reading = Reading(reached.transport.start(reached.node, script(body)))
    assert reading.exit()[0] == 0
    assert reading.lines == ["whole", "\ufffd", "last"]


def ends_a_program_when_another_thread_asks(reached: Reached) -> None:
    reading = start_sleeper(reached)
    reading.program.end()
    code, _ = reading.exit()
    assert reading.answer == {"signal": 15} if code == 0 else reading.answer is None
    wait_until_gone(reading)


def ends_a_program_whose_connection_is_lost_and_says_that_it_was_lost(reached: Reached) -> None:
    reading = start_sleeper(reached)
    reached.cut(reading.program)
    result = reading.exit()
    assert (result[0] != 0, reading.answer) == (True, None)
    failure = reached.transport.why(reached.node, result, LIMIT_S)
    assert failure.wrong
    assert failure.unreachable
    wait_until_gone(reading)


def reports_a_node_that_does_not_answer(reached: Reached) -> None:
    failure = reached.transport.query(reached.unreachable, script("print(1)"), False)
    assert isinstance(failure, Failure)
    assert failure.unreachable
    assert failure.wrong
    reading = Reading(reached.transport.start(reached.unreachable, script("print(1)")))
    result = reading.exit()
    assert (result[0] != 0, reading.lines) == (True, [])
    assert reached.transport.why(reached.unreachable, result, LIMIT_S).wrong


def keeps_secrets_off_every_command_line(reached: Reached) -> None:
    secret = secrets.token_hex(16)
    reading = start_sleeper(reached, WANDB_API_KEY=secret)
    assert [line for line in command_lines() if secret in line] == []
    reading.program.end()
    reading.exit()


PROMISES = (
    can_be_checked_and_names_an_address,
    carries_a_request_unchanged,
    refuses_output_without_end,
    passes_a_line_without_end_in_parts,
    passes_arguments_to_a_program_unchanged,
    gives_a_program_no_input,
    returns_exit_status_and_standard_error,
    explains_a_program_that_failed_by_its_last_line,
    yields_lines_as_they_arrive,
    yields_an_unfinished_last_line_and_undecodable_bytes,
    ends_a_program_when_another_thread_asks,
    keeps_secrets_off_every_command_line,
)
# For transports with a connection that can be lost.
REMOTE_PROMISES = (
    *PROMISES,
    ends_a_program_whose_connection_is_lost_and_says_that_it_was_lost,
    reports_a_node_that_does_not_answer,
)
