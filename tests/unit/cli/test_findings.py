"""The one form in which every command prints findings."""

from __future__ import annotations

import pytest

from gpuctl.cli.errors import guarded
from gpuctl.cli.shared.findings import lines, show
from gpuctl.cli.shared.output import table
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import fail, ok, unknown, warn


def test_the_worst_come_first_in_columns_with_the_hint_below() -> None:
    listed = [
        ok("names", "", "resolve"),
        warn("clocks", "gpu-5", "600 W"),
        fail("driver", "gpu-3", "old", "upgrade it"),
    ]
    assert list(lines(listed)) == [
        "FAIL     driver          gpu-3: old",
        "                         hint: upgrade it",
        "WARN     clocks          gpu-5: 600 W",
        "OK       names           resolve",
    ]


def test_a_long_name_of_a_check_widens_the_column_of_all_lines() -> None:
    first, second = lines([fail("setting limits.memlock", "gpu-1", "refused"), fail("host", "gpu-2", "no answer")])
    assert first.index("gpu-1") == second.index("gpu-2")


def test_equal_findings_are_one_line_that_names_all_subjects() -> None:
    pods = [fail("image", f"Pod lab-{number}", "cannot be pulled", "log in") for number in range(2)]
    assert next(lines(pods)) == "FAIL     image           Pods lab-0, lab-1: cannot be pulled"
    pairs = [fail("pair", f"gpu-1 and gpu-{number}", "slow") for number in (2, 3)]
    assert next(lines(pairs)) == "FAIL     pair            gpu-1 and gpu-2, gpu-1 and gpu-3: slow"


def test_a_hint_of_several_messages_is_printed_once_after_the_last() -> None:
    listed = list(
        lines([fail("ecc", "gpu-1", "3 errors", "replace it"), fail("ecc", "gpu-2", "4 errors", "replace it")])
    )
    assert [line[25:] for line in listed] == ["gpu-1: 3 errors", "gpu-2: 4 errors", "hint: replace it"]


def test_more_messages_than_fit_are_counted_by_subject() -> None:
    nodes = [unknown("ports", f"gpu-{number}", f"port {number} is silent") for number in range(20)]
    listed = list(lines(nodes))
    assert len(listed) == 9
    assert listed[-1].endswith(
        "similar: " + ", ".join(f"gpu-{n}" for n in range(8, 16)) + " and 4 more; --output json lists all"
    )
    assert len(list(lines(nodes, most=None))) == 20


def test_findings_are_printed_to_the_stream_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    show([ok("names", "gpu-1", "resolve")], err=True, indent="  ")
    assert capsys.readouterr() == ("", "  OK       names           gpu-1: resolve\n")


def test_escape_sequences_of_others_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """OSC 52 would write to the clipboard, OSC 0 set the title."""
    show([fail("log", "gpu-1", "\x1b]52;c;aGk=\x07\x9d0;title\x9c", "\x1b[2J")])
    table(("HOST",), [["\x1b]0;title\x07"]])
    with pytest.raises(SystemExit):
        guarded(_fails)
    printed = capsys.readouterr()
    assert [letter for letter in printed.out + printed.err if letter in "\x1b\x07\x9c\x9d"] == []
    assert (printed.out + printed.err).count("\\x1b]") == 3


def _fails(**_: object) -> None:
    raise GpuctlError("query the host", "\x1b]0;title\x07")
