"""A cluster file as lines to be written: each value with where it came from, each that is not known as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

UNKNOWN = "UNKNOWN"
WIDTH = 118


@dataclass(frozen=True)
class Line:
    """One field by its way from the top; `said`: where the value came from, or what is to be filled in.

    Without a `value` it becomes a comment, with what is `shown` in its place; `needed`: the file cannot be used until
    somebody fills it in, and `fill` says by what.
    """

    path: str
    value: Any = None
    said: tuple[str, ...] = ()
    needed: bool = False
    fill: str = ""
    shown: str = UNKNOWN


def known(path: str, value: Any, *said: str) -> Line:
    """A value, and where it came from."""
    return Line(path, value, said)


def unknown(path: str, why: str, fill: str, *, needed: bool = False) -> Line:
    """A value that nobody told; `why` it could not be found, and what to `fill` in."""
    return Line(path, None, (f"{UNKNOWN}: {why}; {fill}",), needed, fill)


def text(head: Sequence[str], lines: Sequence[Line]) -> str:
    """The file; fields of one section have to stand together."""
    written = [*(f"# {line}".rstrip() for line in head), *_section(lines, 0)]
    return "\n".join([*written, ""])


def _section(lines: Sequence[Line], depth: int) -> Iterator[str]:
    """The lines of a section, its own sections among them; one in which nothing is known is a comment as a whole."""
    for name, inside in _by_name(lines, depth).items():
        if depth == 0:
            yield ""
        if len(inside) == 1 and inside[0].path.count(".") == depth:
            yield from _field(inside[0], name, depth)
            continue
        section_lines = [line for line in inside if line.path.count(".") == depth]  # comments on the section itself
        for line in section_lines:
            yield from _comments(line.said, depth)
        below = [line for line in inside if line not in section_lines]
        empty = all(line.value is None for line in below)
        yield f"{_indent(depth)}{'# ' if empty else ''}{name}:"
        yield from _section(below, depth + 1)


def _by_name(lines: Sequence[Line], depth: int) -> dict[str, list[Line]]:
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.path.split(".")[depth], []).append(line)
    return by_name


def _field(line: Line, name: str, depth: int) -> Iterator[str]:
    yield from _comments(line.said, depth)
    if line.value is None:
        yield f"{_indent(depth)}# {name}: {line.shown}"
    elif isinstance(line.value, Mapping):
        yield f"{_indent(depth)}{name}:"
        yield from (f"{_indent(depth + 1)}{_plain(key)}: {_plain(value)}" for key, value in line.value.items())
    elif isinstance(line.value, (list, tuple)):
        yield f"{_indent(depth)}{name}:"
        yield from (f"{_indent(depth + 1)}- {_plain(item)}" for item in line.value)
    else:
        yield f"{_indent(depth)}{name}: {_plain(line.value)}"


def _comments(comments: Sequence[str], depth: int) -> Iterator[str]:
    """What is told stands on lines of its own, whatever names the cluster gave to things."""
    for comment in comments:
        shown = "".join(letter if letter.isprintable() else " " for letter in comment)  # YAML takes no others
        for part in textwrap.wrap(" ".join(shown.split()), WIDTH - 2 * depth, break_on_hyphens=False):
            yield f"{_indent(depth)}# {part}"


def _indent(depth: int) -> str:
    return "  " * depth


def _plain(value: Any) -> str:
    """A single value, in quotes where YAML would take it for something else."""
    written: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return written.removesuffix("\n").removesuffix("\n...")
