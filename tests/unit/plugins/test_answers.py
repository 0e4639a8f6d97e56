"""Answers of hosts are checked: malformed ones have a reason, and texts are printable."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import answer_types, model
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
MACHINE = {
    "machine": "metal",
    "distribution": "debian",
    "family": "debian",
    "version": "12",
    "arch": "x86_64",
    "vendor": "Dell Inc.",
    "memory": "503GiB",
    "gpus": [],
    "nics": [],
}
TUNE = {"action": "tune"}
VISIT: dict[str, Any] = {"form": 1, "machine": MACHINE, "busy": [], "record": None, "knobs": [KNOB]}


def printed(answer: object) -> bytes:
    return b"Welcome!\r\nno newline at the end" + f"\n{TOKEN}{json.dumps(answer)}\n".encode() + b"logout\n"


def test_banners_before_and_noise_after_do_not_matter() -> None:
    assert find(printed(VISIT), TOKEN, TUNE) == VISIT


def test_an_error_is_an_answer() -> None:
    answer = {"form": 1, "error": {"wrong": "no root", "hint": "use sudo"}}
    assert find(printed(answer), TOKEN, {"action": "undo"}) == answer


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
        find(output, TOKEN, TUNE)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([], "not a JSON object"),
        ({}, "form None"),
        ({"form": 99}, "form 99, this gpuctl reads 1"),
        ({"form": 1}, "machine is missing"),
        ({**VISIT, "knobs": {}}, r"knobs is \{\}, not a list"),
        ({**VISIT, "knobs": [1]}, r"knobs\[0\] is 1, not an object"),
        ({**VISIT, "knobs": [{**KNOB, "state": "fine"}]}, r"knobs\[0\].state is 'fine', not one of 'ok', 'differs'"),
        ({**VISIT, "knobs": [{**KNOB, "changed": "no"}]}, r"knobs\[0\].changed is 'no', not true or false"),
        ({**VISIT, "knobs": [{**KNOB, "now": 1}]}, r"knobs\[0\].now is 1, not a text or null"),
        ({**VISIT, "knobs": [{k: v for k, v in KNOB.items() if k != "steps"}]}, r"knobs\[0\].steps is missing"),
        ({"form": 1, "error": "broken"}, "error is 'broken', not an object"),
        ({"form": 1, "error": {"wrong": "x"}}, "error.hint is missing"),
    ],
)
def test_a_malformed_answer_is_refused_with_the_place(answer: object, reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        find(printed(answer), TOKEN, TUNE)


def test_each_action_has_an_answer_of_its_own() -> None:
    assert checked({"form": 1, "records": []}, {"action": "records"})["records"] == []
    with pytest.raises(BadAnswer, match="records is missing"):
        checked(VISIT, {"action": "records"})
    machine_facts = {"form": 1, "machine": MACHINE}
    assert checked(machine_facts, {"action": "facts"}) == machine_facts


PEER = {"name": "b", "address": "10.0.0.2"}
FACTS = {"action": "facts", "subjects": "nccl", "only": ["peer_memory", "reach"], "peers": [PEER]}
PEER_MEMORY: dict[str, Any] = {"kernel": "6.8.0", "modules": ["nvidia_peermem"], "unread": {}}
LOGIN = {"ok": True, "hostname": "b", "error": None, "seconds": 0.1}
REACH: dict[str, Any] = {"user": "root", "peers": {"b": LOGIN}, "unread": {}}


def facts(**subjects: object) -> dict[str, Any]:
    return {"form": 1, "machine": MACHINE, "facts": {"peer_memory": PEER_MEMORY, "reach": REACH, **subjects}}


def test_facts_are_those_of_the_request() -> None:
    assert checked(facts(seconds=1.0), FACTS)["facts"] == {"peer_memory": PEER_MEMORY, "reach": REACH, "seconds": 1.0}


def test_a_subject_that_could_not_be_read_has_none_for_each_of_its_values() -> None:
    unread = {"unread": {"*": "permission denied"}}
    cleaned = checked(facts(peer_memory=unread), FACTS)["facts"]["peer_memory"]
    assert cleaned == {"kernel": None, "modules": None, **unread}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"form": 1, "machine": MACHINE}, r"facts\.peer_memory is missing"),
        (facts(reach={"unread": {}}), r"facts\.reach\.unread\.\* is missing"),
        (facts(peer_memory={"unread": {}, "modules": 7}), r"facts\.peer_memory\.modules is 7, not a list or null"),
        (facts(peer_memory={**PEER_MEMORY, "modules": [None]}), r"modules\[0\] is null, not a text"),
        (facts(peer_memory={**PEER_MEMORY, "gpus": 7}), r"facts\.peer_memory\.gpus is 7, and no such name is known"),
        (facts(reach={**REACH, "peers": {}}), r"facts\.reach\.peers\.b is missing"),
        (facts(reach={**REACH, "peers": {"b": {**LOGIN, "seconds": float("nan")}}}), "seconds is nan, not a number"),
        (
            facts(reach={**REACH, "peers": {"b": {**LOGIN, "seconds": 10**400}}}),
            "more than 64 bits, not a whole number",
        ),
        (facts(reach={**REACH, "peers": {"b": {**LOGIN, "seconds": True}}}), "seconds is true, not a number"),
    ],
)
def test_facts_of_another_type_are_refused_at_any_depth(answer: object, reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        checked(answer, FACTS)


def test_a_deeply_nested_value_is_refused_like_any_other() -> None:
    deep: Any = []
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(BadAnswer, match=r"record is \[\[\[\.\.\.\]\]\], not a text or null"):
        checked({**VISIT, "record": deep}, TUNE)


def test_a_host_cannot_leave_out_a_knob_of_its_profile() -> None:
    knobs = [{"name": name, "value": "never"} for name in ("thp.enabled", "thp.defrag")]
    profile = {"name": "p", "knobs": knobs}
    with pytest.raises(BadAnswer, match=r"knobs\.thp\.defrag is missing"):
        checked(VISIT, {**TUNE, "profile": profile})
    overlay = {"name": "metal", "when": {"machine": ["metal"]}, "drop": ["thp.defrag"]}
    assert checked(VISIT, {**TUNE, "profile": {**profile, "overlays": [overlay]}}) == VISIT
    by_size = {"name": "large", "when": {"memory": [">=64GiB"]}, "drop": ["thp.defrag"]}
    damaged = {**VISIT, "machine": {**MACHINE, "memory": "a lotGiB"}}
    with pytest.raises(BadAnswer, match="memory is 'a lotGiB', not a size"):
        checked(damaged, {**TUNE, "profile": {**profile, "overlays": [by_size]}})


def test_the_states_of_a_knob_are_those_of_the_engine() -> None:
    states = {value for name, value in vars(model).items() if name.isupper() and isinstance(value, str)}
    assert set(get_args(answer_types.State)) == states


def test_escape_sequences_are_spelt_out_everywhere() -> None:
    hostile = "\x1b]0;owned\x07\x9b31m"
    answer = {**VISIT, "busy": [hostile], "knobs": [{**KNOB, "reason": hostile}]}
    cleaned = find(printed(answer), TOKEN, TUNE)
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
