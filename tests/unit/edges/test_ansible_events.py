"""Events of Ansible whose values hosts chose: each becomes a result of that host, whatever its type."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.edges.ansible import Events, HostResult

ERRORS: list[Any] = [5, None, [], {}, {"wrong": 1, "hint": []}, {"host": "gpu-2", "wrong": "x"}]
LIMITS: list[Any] = [3, {}, None, {"period": "\x1b[2J"}]
MESSAGES: list[Any] = [None, 5, ["a"], {"a": 1}, "x\x1b]0;title\x07"]
NONSENSE: list[Any] = [
    *({"error": error} for error in ERRORS),
    *({"timedout": limit} for limit in LIMITS),
    *({"msg": text} for text in MESSAGES),
    {"module_stderr": 5},
    {"gpuctl_result": '{"error": 3}'},
    {"gpuctl_result": "[]"},
    *([], 5, None, "x"),
]


def results(kind: str, res: object) -> list[HostResult]:
    collected: list[HostResult] = []
    Events(collected.append).handle({"event": kind, "event_data": {"host": "gpu-1", "res": res}})
    return collected


@pytest.mark.parametrize("kind", ["runner_on_failed", "runner_on_unreachable"])
@pytest.mark.parametrize("res", NONSENSE)
def test_a_nonsense_answer_is_a_failure_of_its_host_alone(kind: str, res: object) -> None:
    (result,) = results(kind, res)
    assert (result.host, result.result) == ("gpu-1", None)
    assert isinstance(result.wrong, str)
    assert isinstance(result.hint, str)
    assert "\x1b" not in result.wrong + result.hint


def test_the_reason_of_a_refusal_is_shown() -> None:
    refusal = {"error": {"wrong": "its disk cannot be written", "hint": "make it writable"}, "failed": True}
    assert results("runner_on_failed", refusal) == [
        HostResult("gpu-1", wrong="its disk cannot be written", hint="make it writable")
    ]


def test_a_refusal_without_a_reason_makes_no_sense() -> None:
    (result,) = results("runner_on_ok", {"error": {"wrong": "x"}})
    assert result.wrong == "its answer makes no sense: error.hint is missing"
