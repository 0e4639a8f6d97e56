"""The question, and a text that fits its size."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import fail, unknown, warn
from gpuctl.kube.logs_ai.bundle import ANY, QUESTIONS, fitted, log_section, newest, question, section
from gpuctl.kube.logs_ai.model import Log, Section

LOG = [f"line {number:04}" for number in range(1, 1001)]


@pytest.mark.parametrize("check", QUESTIONS)
def test_the_question_follows_from_the_findings(check: str) -> None:
    text = question("the pod a/b", [unknown("node", "a/b", "unreadable"), fail(check, "a/b", "it is bad")])
    assert "records of the pod a/b" in text
    assert QUESTIONS[check] in text
    assert "a/b: it is bad" in text
    assert "unreadable" not in text


def test_of_several_findings_the_most_telling_decides() -> None:
    findings = [fail("crash", "a/b", "exit code 1"), fail("log", "a/b", "ValueError"), warn("image", "a/c", "slow")]
    text = question("the pod a/b", findings)
    assert QUESTIONS["log"] in text
    assert text.index("ValueError") < text.index("exit code 1")


def test_without_findings_the_question_is_open_and_the_users_own_replaces_any() -> None:
    assert ANY in question("the pod a/b", [])
    text = question("the pod a/b", [fail("log", "a/b", "ValueError")], "Is it the node?")
    assert "Is it the node?" in text
    assert "ValueError" in text
    assert QUESTIONS["log"] not in text


def test_a_log_keeps_the_lines_around_its_first_failure_and_its_end() -> None:
    text, omitted = fitted("why?", [log_section("a/b", Log("main", LOG), 300)], 1000)
    assert len(text) <= 1000
    assert ">>> line 0300" in text
    assert "line 0299" in text
    assert "line 1000" in text
    assert "line 0001" not in text
    assert text.index("line 0299") < text.index(">>> line 0300") < text.index("line 1000")
    shown = text.count("line 0") + text.count("line 1000")
    assert shown + omitted == 1000


def test_a_log_without_a_failure_keeps_its_end() -> None:
    text, _ = fitted("why?", [log_section("a/b", Log("main", LOG), None)], 300)
    assert "omitted]\nline 09" in text
    assert text.endswith("line 1000\n")


def test_what_fits_is_whole() -> None:
    sections = [section("pod", ["a", "b"]), newest("events", ["c"]), log_section("a/b", Log("main", ["d"]), None)]
    text, omitted = fitted("why?", sections, 2000)
    assert omitted == 0
    assert text == "why?\n\n=== pod ===\na\nb\n\n=== events ===\nc\n\n=== log of main in a/b ===\nd\n"


@pytest.mark.parametrize("most", [1500, 2000, 24_000, 100_000])
def test_the_text_never_exceeds_its_size(most: int) -> None:
    long = ["x" * 10_000, *LOG, "y" * 100_000]
    sections = [
        section("findings", long),
        section("pod", long),
        newest("events", LOG),
        *(log_section("a/b", Log(name, long), first) for name, first in (("main", 1), ("side", 1002), ("other", None))),
    ]
    text, omitted = fitted("why?", sections, most)
    assert most * 0.6 < len(text) <= most
    assert (omitted > 0) is (most < 100_000)
    assert ">>> " in text


def test_room_that_a_section_does_not_need_goes_to_the_others() -> None:
    text, _ = fitted("why?", [section("pod", ["a"]), log_section("a/b", Log("main", LOG), None)], 8000)
    assert len(text) > 7900


def test_an_unread_log_is_unknown_and_an_empty_one_empty() -> None:
    sections = [log_section("a/b", Log("main", before=True, why="timeout"), None), log_section("a/b", Log("x"), None)]
    text, _ = fitted("why?", sections, 2000)
    assert "=== log of main (the run that ended last) in a/b ===\n(unknown: timeout)" in text
    assert text.endswith("(empty)\n")


def test_a_question_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(InvalidInput, match="raise --most"):
        raise_hint("why? " * 500, [section("pod", ["a"])])


def raise_hint(head: str, sections: list[Section]) -> None:
    try:
        fitted(head, sections, 2000)
    except InvalidInput as error:
        raise InvalidInput(error.doing, f"{error.wrong}; {error.hint}") from error
