"""Answers of hosts are checked: malformed ones have a reason, and texts are printable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.answers import (
    TEXT,
    BadAnswer,
    checked,
    find,
    packed,
    unpacked,
)

TOKEN = "gpuctl-0123456789abcdef "  # noqa: S105
KNOB = {
    "knob": "thp.enabled",
    "desired": "never",
    "now": "always",
    "boot": None,
    "state": "differs",
    "reason": "",
    "changed": False,
    "reboot": False,
    "restores": False,
    "disruptive": "",
    "conflicts": [],
    "notes": [],
    "steps": [{"setting": "value /sys/x", "before": "always", "after": "never"}],
}
MACHINE = {"machine": "metal", "distribution": "debian", "family": "debian", "version": "12", "gpus": [], "nics": []}
VISIT: dict[str, Any] = {"form": 1, "machine": MACHINE, "busy": [], "record": None, "knobs": [KNOB]}


def printed(answer: object) -> bytes:
    return b"Welcome!\r\nno newline at the end" + f"\n{TOKEN}{json.dumps(answer)}\n".encode() + b"logout\n"


def test_banners_before_and_noise_after_do_not_matter() -> None:
    assert find(printed(VISIT), TOKEN, "tune") == VISIT


def test_an_error_is_an_answer() -> None:
    answer = {"form": 1, "error": {"wrong": "no root", "hint": "use sudo"}}
    assert find(printed(answer), TOKEN, "undo") == answer


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (b"Welcome!\n", "it ran our program and gave no answer"),
        (b"\n" + TOKEN.encode() + b"{", "its answer is not valid JSON"),
        (b"\n" + TOKEN.encode() + b"[" * 200_000, "its answer is not valid JSON"),
        (b"\n" + TOKEN.encode() + b"\xff\xfe", "its answer is not valid JSON"),
        (b"\n" + TOKEN.encode() + b"9" * 5000, "its answer is not valid JSON"),
    ],
)
def test_output_without_an_answer_is_refused(output: bytes, reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        find(output, TOKEN, "tune")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([], "not a JSON object"),
        ({}, "form None"),
        ({"form": 99}, "form 99, this gpuctl reads 1"),
        ({"form": 1}, "machine is missing"),
        ({**VISIT, "knobs": {}}, "knobs is not a list"),
        ({**VISIT, "knobs": [1]}, r"knobs\[0\] is not an object"),
        ({**VISIT, "knobs": [{**KNOB, "state": "fine"}]}, r"knobs\[0\].state is 'fine'"),
        ({**VISIT, "knobs": [{**KNOB, "changed": "no"}]}, r"knobs\[0\].changed is 'no'"),
        ({**VISIT, "knobs": [{**KNOB, "now": 1}]}, r"knobs\[0\].now is '1'"),
        ({**VISIT, "knobs": [{k: v for k, v in KNOB.items() if k != "steps"}]}, r"knobs\[0\].steps is missing"),
        ({"form": 1, "error": "broken"}, "error is not an object"),
        ({"form": 1, "error": {"wrong": "x"}}, "error.hint is missing"),
    ],
)
def test_a_malformed_answer_is_refused_with_the_place(answer: object, reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        find(printed(answer), TOKEN, "tune")


def test_each_action_has_an_answer_of_its_own() -> None:
    assert checked({"form": 1, "records": []}, "records")["records"] == []
    with pytest.raises(BadAnswer, match="records is missing"):
        checked(VISIT, "records")
    facts = {"form": 1, "machine": MACHINE, "facts": {"gpu": {"unread": {}}, "seconds": 1.0}}
    assert checked(facts, "facts") == facts
    with pytest.raises(BadAnswer, match=r"facts\.gpu\.unread is missing"):
        checked({**facts, "facts": {"gpu": {}}}, "facts")


def test_escape_sequences_are_spelt_out_everywhere() -> None:
    hostile = "\x1b]0;owned\x07\x9b31m"
    answer = {**VISIT, "busy": [hostile], "knobs": [{**KNOB, "reason": hostile}]}
    cleaned = find(printed(answer), TOKEN, "tune")
    assert cleaned["busy"] == [r"\x1b]0;owned\x07\x9b31m"]
    assert cleaned["knobs"][0]["reason"] == r"\x1b]0;owned\x07\x9b31m"


def test_a_result_passes_through_ansible_as_one_text() -> None:
    result = {**VISIT, "changed": True, "reboot_required": False, "diff": {"before": "a", "after": "b"}}
    small = packed(result)
    assert small.keys() == {"changed", "reboot_required", "busy", TEXT}
    assert unpacked(small) == {name: value for name, value in result.items() if name != "diff"}


@pytest.mark.parametrize(
    "result",
    [{"failed": True, "msg": "it has no Python"}, {TEXT: "{"}, {TEXT: "[" * 100_000}, {TEXT: "1"}, {TEXT: None}],
)
def test_a_result_that_is_no_text_of_ours_stays_as_it_is(result: dict[str, Any]) -> None:
    assert unpacked(result) == result
    assert packed(result) == result
