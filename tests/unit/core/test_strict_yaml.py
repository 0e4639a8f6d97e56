"""Strict YAML: every mistake of a file at once, with line and path; nothing that a file could hide behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import (
    ANY_TEXT,
    At,
    EmptyFile,
    Flag,
    ListOf,
    MappingOf,
    Node,
    Parsed,
    Section,
    Text,
    Whole,
    load_file,
)

EMPTY = EmptyFile("rack plan", "give it `racks:`")


def _rack(values: dict[str, Any], node: Node, at: At) -> dict[str, Any]:
    if values["nodes"] > values.get("most", 99):
        at.refuse(node, "has more nodes than it can take")
    return values


RACK = Section({"nodes": Whole(1, 99), "most": Whole(1, 99), "spare": Flag()}, ("nodes",), _rack)
PLAN = Section(
    {"racks": MappingOf(Text(r"r\d+", "a rack such as r1"), RACK), "notes": ListOf(ANY_TEXT, "notes", unique=True)},
    ("racks",),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.yml"


def refused(file: Path, text: str) -> list[str]:
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load_file(file, PLAN, f"use {file}", EMPTY)
    assert str(caught.value).startswith(f"cannot use {file}: ")
    return [line.strip().removeprefix(f"{file}:").strip() for line in caught.value.wrong.splitlines()]


def test_a_file_is_read_as_its_schema_types_it(file: Path) -> None:
    file.write_text("racks:\n  r1: {nodes: 4, spare: true}\nnotes: [1.10, on]\n")
    assert load_file(file, PLAN, "use it", EMPTY) == {
        "racks": {"r1": {"nodes": 4, "spare": True}},
        "notes": ("1.10", "on"),
    }


def test_all_mistakes_come_at_once_in_the_order_of_their_lines(file: Path) -> None:
    assert refused(
        file, "notes: [a, a]\nraks: 1\nracks:\n  x: {nodes: 0}\n  r2: {spare: yes}\n  r3: {nodes: 9, most: 8}\n"
    ) == [
        "1: notes names a twice; keep one",
        "2: raks is not known; did you mean racks?",
        "4: racks is 'x': not a rack such as r1",
        "4: racks.x.nodes is '0', not a whole number from 1 to 99",
        "5: racks.r2.nodes is missing",
        "5: racks.r2.spare is neither true nor false; write one of them",
        "6: racks.r3 has more nodes than it can take",
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("racks:\n  r1: {nodes: 1}\nracks: {}\n", "3: racks is given twice, first on line 1; keep one"),
        ("racks:\n  r1: &a {nodes: 1}\n  r2: *a\n", "3: is an alias (*a); write the value out"),
        ("racks: {r1: !!int 5}\n", "1: has the tag tag:yaml.org,2002:int; leave it out; write the value alone"),
        ("racks:\n  r1: {nodes: 1}\n---\n{}\n", "3: starts a second document; keep one document in the file"),
        ("racks: {[a]: b}\n", "1: a list or mapping cannot be a name"),
        ("racks:\n  '': {nodes: 1}\n", "2: a name is empty"),
        ("racks: [\n", "2: is not YAML: did not find expected node content; look at indentation and quotes"),
    ],
)
def test_a_document_that_could_mean_something_else_is_refused(file: Path, text: str, mistake: str) -> None:
    assert mistake in refused(file, text)


@pytest.mark.parametrize("text", ["[" * 50_000, "{a: " * 50_000, "- " * 50_000, "? " * 50_000])
def test_deep_nesting_is_an_error_with_its_line_and_no_crash(file: Path, text: str) -> None:
    assert refused(file, text) == ["1: is nested more than 50 levels deep; look for stray brackets"]


@pytest.mark.parametrize("text", ["", "\n\n", "# racks:\n", "---\n", "---\n# racks:\n...\n"])
def test_a_file_of_comments_is_empty_and_the_error_names_its_keys(file: Path, text: str) -> None:
    assert refused(file, text) == ["is an empty rack plan; give it `racks:`"]


@pytest.mark.parametrize("text", ["''\n", "~\n", "[]\n"])
def test_a_null_value_is_not_an_empty_file(file: Path, text: str) -> None:
    assert refused(file, text) == ["1: is not a mapping of racks, notes"]


def test_a_binary_file_is_refused_in_plain_words(file: Path) -> None:
    assert refused(file, "racks: \0\n") == [
        "is not YAML: unacceptable character #x0000: control characters are not allowed"
    ]
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        load_file(file, PLAN, "use it", EMPTY)


def _even(text: str) -> int | None:
    if not text.isdigit():
        return None
    if int(text) % 2:
        raise ValueError("is odd")
    return int(text)


@pytest.mark.parametrize(
    ("text", "mistake"), [("x", "is 'x': not an even number"), ("3", "is odd"), ("[2]", "is not an even number")]
)
def test_a_parsed_field_reports_its_shape_or_the_problem(file: Path, text: str, mistake: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidInput, match=mistake):
        load_file(file, Parsed(_even, "an even number"), "use it", EMPTY)


@pytest.mark.parametrize(
    ("text", "value"), [("40%", 40), ("5%", 5), ("40", None), ("4%", None), ("40%%", None), ("%", None)]
)
def test_a_whole_number_has_the_unit_that_its_field_writes(file: Path, text: str, value: int | None) -> None:
    file.write_text(f"'{text}'")
    if value is not None:
        assert load_file(file, Whole(5, 95, "%"), "use it", EMPTY) == value
        return
    with pytest.raises(InvalidInput, match="not a whole number from 5% to 95%"):
        load_file(file, Whole(5, 95, "%"), "use it", EMPTY)


def test_a_hint_that_the_error_has_is_not_repeated_for_a_file_of_comments(file: Path) -> None:
    file.write_text("# racks\n")
    with pytest.raises(InvalidInput) as caught:
        load_file(file, PLAN, "use the plan", EMPTY, EMPTY.hint)
    assert str(caught.value) == f"cannot use the plan: {file}: is an empty {EMPTY.noun}"
    assert caught.value.hint == EMPTY.hint
