"""The table of keys is one: what is bound, what the cheatsheet says and what the page says come from it."""

from __future__ import annotations

import re
from pathlib import Path

from gpuctl.core.settings import Settings
from gpuctl.tmux import keys, render

PAGE = Path(__file__).parents[3] / "docs/tmux.md"
# The inside of an 80 % popup on a terminal of 80x24, less the line that says how to close it.
POPUP = (62, 15)


def bound(text: str) -> set[tuple[str, str]]:
    found = re.findall(r"^bind-key (?:-r )?-T (\w+) (\S+)", text, re.MULTILINE)
    return {(table, key.strip("'")) for table, key in found}


def test_every_key_of_the_table_is_bound_once() -> None:
    table = keys.rows()
    text = keys.bindings(table)
    expected = {(row.table, key) for row in table for key in row.keys}
    assert bound(text) == expected
    assert len(re.findall("^bind-key", text, re.MULTILINE)) == len(expected)


def test_a_key_of_window_0_keeps_its_usual_meaning_elsewhere() -> None:
    lines = {
        line.split()[3]: line
        for line in keys.bindings(keys.rows()).splitlines()
        if "-T prefix" in line and " if-shell " in line
    }
    assert set(lines) == {"p", "l", "e"}
    assert lines["p"].endswith("{ previous-window }")
    assert lines["l"].endswith("{ select-pane -R }")
    assert lines["e"].count("{ ") == 1  # tmux has nothing on it


def test_keys_without_prefix_read_the_setting_when_pressed() -> None:
    files = [render.files(Settings(keys_without_prefix=expected)) for expected in (True, False)]
    assert files[0] == files[1]
    root = [line for line in files[0]["keybindings.conf"].splitlines() if "-T root" in line]
    assert root
    assert all("@gpuctl_keys_without_prefix" in line and "{ send-keys " in line for line in root)


def test_two_columns_of_the_cheatsheet_fit_in_the_smallest_popup() -> None:
    lines = keys.cheatsheet(keys.rows()).splitlines()
    assert 2 * (max(map(len, lines)) + 1) <= POPUP[0]
    assert (len(lines) + 1) // 2 <= POPUP[1]


def test_the_page_lists_every_key() -> None:
    page = PAGE.read_text()
    missing = [row.written for row in keys.rows() if f"| `{row.written}` |" not in page]
    assert not missing
