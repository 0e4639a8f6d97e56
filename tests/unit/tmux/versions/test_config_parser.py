"""Configuration files taken apart into commands."""

from __future__ import annotations

from gpuctl.tmux.versions.config_parser import split
from gpuctl.tmux.versions.key_check import bound


def unclosed_parts(text: str) -> list[tuple[int, str]]:
    return [(unit.line, unit.text.strip()) for unit in split(text)[0]]


def test_each_command_has_its_line() -> None:
    assert unclosed_parts("# a comment\n\nset -g a 1\n  set -g b 2 # why\n") == [
        (3, "set -g a 1"),
        (4, "set -g b 2 # why"),
    ]


def test_a_semicolon_ends_a_command_unless_it_is_quoted_escaped_or_in_a_block() -> None:
    assert unclosed_parts("set -g a 1 ; set -g b ';' ; bind x a \\; b") == [
        (1, "set -g a 1"),
        (1, "set -g b ';'"),
        (1, "bind x a \\; b"),
    ]
    assert unclosed_parts("bind x { a ; b }\nset -g c 1") == [(1, "bind x { a ; b }"), (2, "set -g c 1")]


def test_lines_go_on_after_a_backslash_in_quotes_and_in_blocks() -> None:
    text = "set -g a \\\n  b\nset -g c 'd\ne'\nbind x {\n # it's a comment\n f\n}\nset -g last 1"
    assert [line for line, _ in unclosed_parts(text)] == [1, 3, 5, 9]
    assert unclosed_parts("# a comment \\\nthat goes on\nset -g a 1") == [(3, "set -g a 1")]


def test_an_unclosed_quote_or_brace_is_reported_at_its_opening() -> None:
    assert split('set -g a 1\nset -g b "x\ny\n')[1] == [(2, 'unclosed "')]
    assert split("bind x {\n a {\n }\n")[1] == [(1, "unclosed {")]
    assert split('set -g a "it\'s"\nset -g b \'say "\'\nset -g c \\"')[1] == []


def test_conditions_are_not_commands() -> None:
    units, unclosed = split("%if #{==:#{host},a;b}\nset -g a 1\n%else\nset -g a 2\n%endif\n%if 1 set -g b 1 %endif\n")
    assert [unit.condition for unit in units] == ["%if", "", "%else", "", "%endif", ""]
    assert unclosed == []


def test_keys_count_as_bound_until_they_are_unbound() -> None:
    text = "bind -r x a\nbind-key -n F5 b\nbind -T copy-mode -N 'a note' '\"' c\nbind y d\nunbind y\n"
    fed = [("tmux.conf", unit) for unit in split(text)[0]]
    assert set(bound(fed)) == {("prefix", "x"), ("root", "F5"), ("copy-mode", '"')}
    fed += [("tmux.conf", unit) for unit in split("unbind -a -T copy-mode")[0]]
    assert set(bound(fed)) == {("prefix", "x"), ("root", "F5")}
