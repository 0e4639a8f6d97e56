"""The cheatsheet tells of the keys that are bound, and of no others."""

from __future__ import annotations

from gpuctl.tmux import keys
from gpuctl.tmux.versions.config_parser import split
from gpuctl.tmux.versions.key_check import bound, undocumented


def wrong(sheet: str, bindings: str) -> list[str]:
    mine = bound([("keybindings.conf", unit) for unit in split(bindings)[0]])
    return [str(mistake) for mistake in undocumented(sheet, mine, mine.keys())]


def test_the_shipped_cheatsheet_matches_the_bindings() -> None:
    assert wrong(keys.cheatsheet(keys.rows()), keys.bindings(keys.rows())) == []


def test_a_documented_but_unbound_key_is_reported_with_its_line() -> None:
    mistakes = wrong("PANES\n  h  left\n  y  fly\n", "bind-key -T prefix h select-pane -L\n")
    assert mistakes == ["cheatsheet.txt:3: it lists the key y (table prefix), which is not bound"]


def test_a_bound_but_undocumented_key_is_reported_with_its_line() -> None:
    mistakes = wrong("PANES\n  h  left\n", "bind-key -T prefix h select-pane -L\n\nbind-key -T prefix y next-window\n")
    assert mistakes == ["keybindings.conf:3: cheatsheet.txt does not list the key y (table prefix)"]


def test_a_key_documented_for_another_table_is_a_different_key() -> None:
    mistakes = wrong("WITHOUT PREFIX\n  M-0-1  jump\n", "bind -n M-0 next-window\nbind M-1 next-window\n")
    assert [mistake.partition(": ")[0] for mistake in mistakes] == ["cheatsheet.txt:2", "keybindings.conf:2"]
