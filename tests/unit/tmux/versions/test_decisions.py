"""The changelog, the terminal of a preview, and the commands that put a server back."""

from __future__ import annotations

import pytest

from gpuctl.tmux.versions import state
from gpuctl.tmux.versions.changelog import noted
from gpuctl.tmux.versions.terminals import choose

COMMAND = ("tmux", "attach", 'a "b"')


def test_the_newest_version_is_on_top_and_what_the_user_wrote_stays() -> None:
    text = noted("", "v1", "made", "2026-01-01 10:00:00")
    text = noted(text.replace("made", "made\n\nmy own words"), "v2", "made\nfrom v1", "2026-01-02 10:00:00")
    text = noted(text, "v1", "rolled back to", "2026-01-03 10:00:00")
    assert text == (
        "# Versions of the tmux configuration\n\n## v2\n\n- 2026-01-02 10:00:00 made from v1\n\n"
        "## v1\n\n- 2026-01-01 10:00:00 made\n\nmy own words\n- 2026-01-03 10:00:00 rolled back to\n"
    )


@pytest.mark.parametrize(
    ("environment", "system", "programs", "on_terminal", "expected_mode"),
    [
        ({"DISPLAY": ":0"}, "Linux", {"xterm"}, True, "window"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "Linux", {"foot"}, False, "window"),
        ({"DISPLAY": ":0"}, "Linux", set(), True, "this terminal"),
        ({"DISPLAY": ":0", "TERM_PROGRAM": "vscode"}, "Linux", {"xterm"}, True, "this terminal"),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "a b"}, "Linux", {"xterm"}, True, "this terminal"),
        ({}, "Linux", {"xterm"}, True, "this terminal"),
        ({}, "Linux", {"xterm"}, False, "detached"),
        ({"TMUX": "socket,1,0"}, "Linux", set(), True, "detached"),
        ({}, "Darwin", {"osascript"}, True, "window"),
        ({"SSH_TTY": "/dev/pts/1"}, "Darwin", {"osascript"}, True, "this terminal"),
    ],
)
def test_where_a_preview_is_shown(
    environment: dict[str, str], system: str, programs: set[str], on_terminal: bool, expected_mode: str
) -> None:
    assert choose(COMMAND, environment, system, programs.__contains__, on_terminal).mode == expected_mode


def test_terminal_and_iterm_are_scripted_to_type_the_command() -> None:
    plain = choose(COMMAND, {}, "Darwin", lambda _: True, True).argv
    assert 'tell application "Terminal"' in plain
    assert 'do script "tmux attach \'a \\"b\\"\'"' in plain
    iterm = choose(COMMAND, {"TERM_PROGRAM": "iTerm.app"}, "Darwin", lambda _: True, True).argv
    assert 'tell application "iTerm2"' in iterm


def test_new_keys_and_options_are_removed_and_old_ones_restored() -> None:
    keys = state.keys('bind-key    -T prefix       \\"   split-window\nbind-key -r -T root F5 next-window\n')
    assert set(keys) == {("prefix", '\\"'), ("root", "F5")}
    desired = state.State(keys, {("set-option -g", "status"): "on", ("set-hook -g", "x[1]"): "list-keys"})
    what = state.Changed(
        frozenset({("root", "F5"), ("root", "F6")}),
        frozenset({("set-option -g", "status"), ("set-option -g", "@new"), ("set-hook -g", "x[1]")}),
    )
    assert state.commands(desired, what) == [
        "bind-key -r -T root F5 next-window",
        "unbind-key -q -T root F6",
        "set-hook -g 'x[1]' { list-keys }",
        "set-option -gu '@new'",
        "set-option -g 'status' on",
    ]
