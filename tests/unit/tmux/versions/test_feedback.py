"""The feedback log: written by several, rotated, cut and half written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuctl.tmux.versions import feedback
from gpuctl.tmux.versions.feedback_cursor import CURSOR_FILE, Cursor, parse_cursor, taken, unread
from gpuctl.tmux.versions.pane import meaning
from tests.rig.full_disk import file_size_limit

HEAD = b"=== New Preview Session: v2 2026-11-21 10:00:00 ===\n"


def texts(log: bytes, last: Cursor, older: list[bytes] | None = None) -> tuple[list[str], Cursor]:
    feedback_entries, now = unread(log, older or [], last)
    return [entry.text for entry in feedback_entries], now


def test_only_new_feedback_is_returned_with_its_version() -> None:
    first = HEAD + b"[10:00:01] one\n"
    _, now = unread(first, [], Cursor())
    feedback_entries, _ = unread(first + b"[10:00:02] two\n", [], now)
    assert [(entry.version, entry.date, entry.time, entry.text) for entry in feedback_entries] == [
        ("v2", "2026-11-21", "10:00:02", "two")
    ]


def test_an_unfinished_line_waits_until_it_is_complete() -> None:
    messages, now = texts(HEAD + b"[10:00:01] one\n[10:00:02] tw", Cursor())
    assert messages == ["one"]
    assert texts(HEAD + b"[10:00:01] one\n[10:00:02] two\n", now)[0] == ["two"]


def test_after_a_rotation_the_rest_of_the_old_log_comes_first() -> None:
    _, now = texts(HEAD + b"[10:00:01] one\n", Cursor())
    old = HEAD + b"[10:00:01] one\n[10:00:02] two\n"
    between = HEAD + b"[10:00:03] three\n"
    assert texts(HEAD + b"[10:00:04] four\n", now, [between, old])[0] == ["two", "three", "four"]


def test_a_truncated_log_is_read_from_its_beginning() -> None:
    _, now = texts(HEAD + b"[10:00:01] a long first remark\n", Cursor())
    assert texts(HEAD + b"[11:00:00] new\n", now)[0] == ["new"]
    assert texts(b"", now)[0] == []


def test_an_unreadable_cursor_means_the_beginning() -> None:
    assert parse_cursor("no place") == Cursor()
    assert parse_cursor("") == Cursor()


def test_feedback_that_was_not_printed_is_returned_again(tmp_path: Path) -> None:
    log = tmp_path / "feedback.log"
    feedback.add(log, "v1", "one")
    try:
        with taken(log) as feedback_entries:
            assert len(feedback_entries) == 1
            raise BrokenPipeError
    except BrokenPipeError:
        assert not (tmp_path / CURSOR_FILE).exists()
    with taken(log) as feedback_entries:
        assert [entry.text for entry in feedback_entries] == ["one"]
    with taken(log) as feedback_entries:
        assert feedback_entries == []
    assert (tmp_path / CURSOR_FILE).read_text().startswith("2 ")


def test_many_writers_leave_whole_lines_under_their_versions(tmp_path: Path) -> None:
    log = tmp_path / "feedback.log"
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda n: feedback.add(log, f"v{n % 2 + 1}", f"{n} " + "x" * 5000), range(40)))
    feedback_entries = feedback.entries(log.read_text().split("\n"))
    assert sorted(int(entry.text.split()[0]) for entry in feedback_entries) == list(range(40))
    assert all(entry.version == f"v{int(entry.text.split()[0]) % 2 + 1}" for entry in feedback_entries)


def test_a_half_written_line_of_another_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "feedback.log"
    log.write_bytes(HEAD + b"[10:00:01] broken o")
    feedback.add(log, "v2", "whole")
    assert [entry.text for entry in feedback.entries(log.read_text().split("\n"))] == ["broken o", "whole"]


def test_feedback_is_one_line_that_no_terminal_obeys() -> None:
    assert feedback.one_line(" two\nlines \x1b[31mred\x07 ") == "two lines [31mred"


def test_commands_of_the_pane_are_run_and_other_lines_are_feedback() -> None:
    assert [meaning(line) for line in ("LGTM", " approve ", "show  config", "quit", "")] == [
        "approve",
        "approve",
        "show",
        "quit",
        "",
    ]
    assert meaning("approve of the colours") == "feedback"


def test_on_a_full_disk_a_line_is_not_cut_but_refused(tmp_path: Path) -> None:
    log = tmp_path / "feedback.log"
    feedback.add(log, "v1", "first")
    before = log.read_bytes()
    with file_size_limit(len(before) + 20), pytest.raises(OSError, match=r"feedback\.log"):
        feedback.add(log, "v1", "second, which is too long for the disk")
    assert log.read_bytes() == before
