"""A node of a launch whose program answers nonsense: the launch fails or the node is unknown, with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.edges.ansible import HostResult
from gpuctl.edges.ssh import Failure
from gpuctl.engine import launch_answers
from gpuctl.nccl.launch.outcome import ProgramEnd, settle
from gpuctl.nccl.model import Launch, Outcome, Sweep
from gpuctl.nccl.runners.ansible import _Answers
from gpuctl.nccl.runners.mpirun import MpiRunner
from gpuctl.remote import payload
from gpuctl.remote.transport import RunningProgram
from tests.rig import damaged_json

MARK = "marked "
PROCESS = {"pid": 7, "name": "all_reduce_perf", "state": "R", "rank": 0}
ANSWERS: dict[str, tuple[object, dict[str, Any]]] = {
    "look": (launch_answers.Look, {"processes": [{**PROCESS, "still": False}]}),
    "end": (launch_answers.End, {"left": [PROCESS]}),
    "gpu processes": (
        launch_answers.GpuProcesses,
        {"processes": [{"pid": 1, "name": "python", "rank": 3}], "hidden": [{"pid": 2, "name": "python"}]},
    ),
    "exit": (launch_answers.Start, {"code": 0}),
    "missing": (launch_answers.Start, {"missing": "mpirun"}),
}
NODES = ("node-1", "node-2")


class Printed:
    """A stand-in for a program that printed these lines and ended."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    def lines(self) -> Iterator[str]:
        yield from self._lines

    def end(self) -> None:
        pass

    def wait(self, patience_s: float = 0) -> tuple[int, str]:
        return 0, ""


class Answering:
    """A stand-in for a transport: the started program and queries answer these JSON texts."""

    start_options: Mapping[str, Any] = {}

    def __init__(self, start: str, end: Mapping[str, str]) -> None:
        self._start, self._end = start, end

    def check(self, nodes: object) -> None:
        pass

    def address(self, node: str) -> str:
        return node

    def start(self, node: str, program: bytes) -> RunningProgram:
        return Printed("hello", f"{_mark(program)}{self._start}")

    def query(self, node: str, program: bytes, fresh: bool) -> bytes | Failure:
        return f"banner\n{_mark(program)}{self._end[node]}\n".encode()

    def why(self, node: str, result: tuple[int, str], limit_s: float) -> Failure:
        return Failure("it ended without an answer")

    def inconclusive(self, nodes: object, started: object, ranks_reported: bool) -> str:
        return ""


def _mark(program: bytes) -> str:
    match = re.search(rb"gpuctl-[0-9a-f]{16} ", program)
    assert match
    return match[0].decode()


@given(st.data(), st.sampled_from(list(ANSWERS)), st.sampled_from([*damaged_json.HOSTILE, "missing"]))
def test_a_damaged_answer_is_read_or_refused_with_the_place(data: st.DataObject, name: str, text: str) -> None:
    shape, whole = ANSWERS[name]
    place = data.draw(st.sampled_from(list(damaged_json.paths(whole))))
    missing = text == "missing" and place
    damaged = damaged_json.without(whole, place) if missing else damaged_json.replaced(whole, place, text)
    answer = payload.answer(f"\n{MARK}{damaged}\n".encode(), MARK, shape)
    if isinstance(answer, Failure):
        assert answer.wrong.startswith("its answer ")
    elif missing:
        assert place[-1] == 0  # a list may be shorter
    else:
        part = damaged_json.part(whole, place)
        assert type(json.loads(text)) in (type(part), type(None)) or place[-1:] == ("rank",)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ('{"code": "0"}', "its answer makes no sense: code is '0', not a whole number"),
        ("{}", "its answer makes no sense: code is missing"),
        ("[" * 100_000, "its answer is not valid JSON"),
        ('{"code": 0, "signal": 9}', "its answer makes no sense: signal is 9, and no such name is known"),
    ],
)
def test_a_launch_whose_starter_answers_nonsense_fails_with_the_reason(start: str, reason: str) -> None:
    (result,) = launched(Answering(start, dict.fromkeys(NODES, '{"left": []}')), [])
    assert result.run.outcome is Outcome.FAILED
    assert result.run.cause == f"node-1: {reason}"


def test_a_node_that_answers_nonsense_at_the_end_may_still_run_something() -> None:
    messages: list[str] = []
    (result,) = launched(Answering('{"signal": 9}', {"node-1": '{"left": []}', "node-2": '{"left": 0}'}), messages)
    assert result.lost == ("node-2",)
    assert "node-2: its processes are unknown: its answer makes no sense: left is 0, not a list" in messages


def launched(transport: Answering, messages: list[str]) -> Any:
    launch = Launch(NODES, Sweep("all_reduce", 8, 8, gpus_per_node=1))
    return MpiRunner(transport).run([launch], lambda _, message: messages.append(message), lambda: False)


def test_a_module_that_answers_nonsense_through_ansible_is_the_reason_of_its_host_alone() -> None:
    answers = _Answers((), lambda *_: None)
    answers.take(HostResult("node-1", {"nccl": {"do": "look", "processes": [{**PROCESS, "still": True}]}}))
    answers.take(HostResult("node-2", {"nccl": {"do": "look", "processes": 7}}))
    answers.take(HostResult("node-3", {"nccl": 7}))
    assert [process.pid for process in answers.ranks("node-1", "all_reduce_perf") or ()] == [7]
    assert answers.ranks("node-2", "all_reduce_perf") is None
    assert answers.wrong["node-2"] == "its answer makes no sense: nccl.processes is 7, not a list"
    assert answers.wrong["node-3"].startswith("its answer makes no sense: nccl is 7, not an object")


def test_a_run_that_printed_too_much_is_never_judged_as_whole() -> None:
    end = ProgramEnd("", {"do": "run", "text": "", "excess": True}, None, [], {}, (), "", NODES)
    launch = Launch(NODES, Sweep("all_reduce", 8, 8, gpus_per_node=1))
    result = settle(launch, [], end, 1.0)
    assert result.run.outcome is Outcome.FAILED
    assert result.run.cause == "node-1: it printed too much and was stopped: is NCCL_DEBUG=TRACE set?"
